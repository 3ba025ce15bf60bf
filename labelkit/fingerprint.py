"""Fingerprints: sha256 hex over canonical JSON. What cannot be fingerprinted is an error."""

from __future__ import annotations

import hashlib

from pydantic import JsonValue

from labelkit.codec import canonical
from labelkit.records import Task


def digest(value: JsonValue) -> str:
    """sha256 hex over the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def task_digest(task: Task) -> str:
    """sha256 hex over the raw prompt and the gold: what two runs must share to be compared."""
    prompt: JsonValue = task.prompt if isinstance(task.prompt, str) else list(task.prompt)
    return digest([prompt, task.gold])
