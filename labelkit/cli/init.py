"""`labelkit init`: a commented starter spec that runs as it is."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from labelkit.cli import app

STARTER = """\
# A labelkit spec. `labelkit check SPEC` finds every fault in it without spending anything;
# `labelkit schema` prints its JSON Schema for your editor.
name: starter

# One task a line: a prompt and its verified right answer. Move many tasks into a file:
#   tasks: {file: problems.jsonl}             # also .json .csv .parquet, gz
#   tasks: {file: foreign.jsonl, fields: {prompt: question, gold: answer}}
tasks:
  - {prompt: "What is 7 + 5?", gold: 12}
  - {prompt: "What is 12 times 11?", gold: 132}
  - {prompt: "A box holds 24 pencils. How many pencils are in 17 boxes?", gold: 408}
  - {prompt: "What is the 613th prime number?", gold: 4517}

# The model under test. local/… runs inside the process, no key needed; any litellm model works
# (openai/gpt-5-mini, anthropic/…, hosted_vllm/… with api_base). Keys come from the environment.
sampler:
  model: local/smollm2-135m
  system: Answer the question. End with the final number in \\boxed{}.
  temperature: 0.8
  max_tokens: 128

# How a reply is judged, and where its answer stands. Others: exact, contains, regex, choice, json,
# python: file.py:function; a list means that all must pass.
scorer: {numeric: {answer: auto}}

# Attempts a task. Raise it later: only the missing ones are sampled.
k: 4

# The exit code is 3 unless every gate holds (for CI).
# gates: [pass_rate >= 0.6, n_unscored == 0]
"""


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("labelkit.yaml"),
) -> None:
    """Write a starter spec that runs as it is on the local model."""
    from labelkit.errors import UsageError
    from labelkit.report.text import plain

    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        raise UsageError(f"{path}: exists already", hint="name another file") from None
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror}",
            hint="name a file in a folder that is there",
        ) from None
    sys.stdout.write(f"wrote {plain(str(path))}\nnext: labelkit rollout {shlex.quote(str(path))}\n")
