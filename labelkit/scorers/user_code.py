"""`python` and `verl`: the user's own reward function decides.

The function runs in worker processes with a wall clock a call, so that a hung one costs its worker
and one unscored attempt. It is the user's code and not sandboxed: a spec may name it only where
--allow-code was given. A reward that cannot be read is a fault, never a clamp.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, JsonValue, ValidationError, model_validator

from labelkit import codec
from labelkit.errors import UsageError
from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import WorkerPool
from labelkit.scorers import Binding, ScorerSettings
from labelkit.seams import Draw

_CHECK = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from labelkit.scorers.user_worker import load
load(json.loads(sys.argv[1]))
"""


class RewardError(Exception):
    """A user's function or program answered with what is no verdict."""


class UserCodeSettings(ScorerSettings):
    """A function of the user's file, `function: file.py:name`, relative to the spec's folder.

    `pass_threshold`: the value from which an attempt has passed. `timeout_s`: wall clock of one
    call. `start_timeout_s`: the time that loading the file may take. `range`: the lowest and the
    highest reward of the function, mapped to 0 and 1.
    """

    SHORT: ClassVar[str | None] = "function"

    function: Annotated[
        str, Field(pattern=r"^.+\.py:[A-Za-z_]\w*$", examples=["reward.py:compute_score"])
    ]
    pass_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    timeout_s: Annotated[float, Field(gt=0)] = 30.0
    start_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    range: tuple[float, float] = Field(default=(0.0, 1.0), strict=False)

    @model_validator(mode="after")
    def _range_rises(self) -> UserCodeSettings:
        if self.range[0] >= self.range[1]:
            raise ValueError(f"range {list(self.range)} must rise, such as [-1, 1]")
        return self

    def bind(self, binding: Binding) -> UserCodeScorer:
        """Loads the file once in a process of its own, so that its faults cost nothing."""
        require_allow_code(binding, self.KIND, self.function)
        name, _, function = self.function.rpartition(":")
        file = (binding.folder / name).resolve()
        if not file.is_file():
            raise UsageError(f"{self.KIND}: {file} does not exist", hint="fix the path")
        argument: dict[str, JsonValue] = {
            "file": str(file),
            "function": function,
            "kind": self.KIND,
        }
        _check_loads(argument, self)
        return UserCodeScorer(self, argument, file, binding)


class PythonSettings(UserCodeSettings):
    """`python: file.py:function`, called with (attempt, gold) or (attempt, gold, task)."""

    KIND: ClassVar[str] = "python"


class VerlSettings(UserCodeSettings):
    """`verl: reward.py:compute_score`, called as verl does: the trainer's own reward selects.

    `data_source` is the task's metadata of that name; `extra_info` is metadata.extra_info with the
    sample's `index` unless it has one of its own.
    """

    KIND: ClassVar[str] = "verl"


class UserCodeScorer:
    """A bound user function and its workers."""

    def __init__(
        self,
        settings: UserCodeSettings,
        argument: dict[str, JsonValue],
        file: Path,
        binding: Binding,
    ) -> None:
        self._settings = settings
        keeper = KeeperSettings(
            entry="labelkit.scorers.user_worker:load",
            argument=argument,
            preload=False,
            start_timeout_s=settings.start_timeout_s,
        )
        self._pool = WorkerPool(
            keeper, workers=binding.processes, environment=os.environ, folder=str(binding.folder)
        )
        self.reads = frozenset({"id", "prompt", "metadata"})
        self.fingerprint: dict[str, JsonValue] = {
            **settings.identity,
            "code": code_hashes(file),
        }

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        """Raises RewardError or the pool's WorkerError where there is no verdict."""
        message: dict[str, JsonValue]
        if isinstance(self._settings, VerlSettings):
            message = _verl_message(task, reply)
        else:
            message = {"task": task.model_dump(mode="json"), "reply": reply.model_dump(mode="json")}
        answer = await self._pool.call(message, self._settings.timeout_s)
        if isinstance(self._settings, VerlSettings) and isinstance(answer, dict):
            answer = _verl_answer(answer)
        return read_verdict(answer, self._settings.pass_threshold, self._settings.range)

    def check_gold(self, task: Task) -> str | None:
        """Any gold, or none, may be what the function expects."""
        return None

    async def close(self) -> None:
        await self._pool.close()


def require_allow_code(binding: Binding, kind: str, what: str) -> None:
    """Raises UsageError where a spec names code and --allow-code was not given."""
    if not binding.allow_code:
        raise UsageError(
            f"{kind}: `{what}` is code that this spec would run on your machine",
            hint="read it, then add --allow-code",
        )


def read_verdict(
    answer: JsonValue, pass_threshold: float, value_range: tuple[float, float] = (0.0, 1.0)
) -> Verdict:
    """A bool, a number or Score-like object as a verdict. Raises RewardError for all else.

    An object needs `value`, or `abstained: true` with a `reason`; `passed` overrides the threshold.
    """
    if isinstance(answer, bool):
        return Score(value=float(answer), passed=answer)
    fields: dict[str, JsonValue] = dict(answer) if isinstance(answer, dict) else {"value": answer}
    try:
        if fields.pop("abstained", False):
            return Abstention.model_validate(fields)
        value = _value(fields.pop("value", None), value_range)
        fields.setdefault("passed", value >= pass_threshold)
        return Score.model_validate({**fields, "value": value})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RewardError(f"{where}: {first['msg']} in {_shown(answer)}") from None


def code_hashes(file: Path) -> dict[str, JsonValue]:
    """sha256 of a Python file and of the modules that it imports from its own folder, by name.

    Follows import statements wherever they stand; what is loaded by other means is not seen.
    """
    folder = file.parent
    hashes: dict[str, JsonValue] = {}
    waiting = [file]
    while waiting:
        source = waiting.pop()
        name = source.relative_to(folder).as_posix()
        if name in hashes:
            continue
        raw = source.read_bytes()
        hashes[name] = hashlib.sha256(raw).hexdigest()
        waiting.extend(_local_imports(raw, source, folder))
    return dict(sorted(hashes.items()))


def _value(raw: JsonValue, value_range: tuple[float, float]) -> float:
    low, high = value_range
    if isinstance(raw, bool):
        return float(raw)
    if not isinstance(raw, int | float):
        raise RewardError(f"returned {_shown(raw)}, not a bool, a number or a Score")
    if not low <= raw <= high:
        raise RewardError(f"returned {_shown(raw)}, outside [{low:g}, {high:g}]")
    return (raw - low) / (high - low)


def _shown(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _verl_message(task: Task, reply: Reply) -> dict[str, JsonValue]:
    extra = task.metadata.get("extra_info")
    return {
        "data_source": task.metadata.get("data_source"),
        "solution_str": reply.text,
        "ground_truth": task.gold,
        "extra_info": {"index": reply.index, **(extra if isinstance(extra, dict) else {})},
    }


def _verl_answer(answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """verl's object has `score`; whatever else is in it is kept as detail."""
    if "score" not in answer:
        raise RewardError(f"returned {_shown(dict(answer))}, which has no `score`")
    detail: JsonValue = {key: value for key, value in answer.items() if key != "score"}
    return {"value": answer["score"], "detail": detail}


def _check_loads(argument: Mapping[str, JsonValue], settings: UserCodeSettings) -> None:
    command = [sys.executable, "-P", "-c", _CHECK, codec.dumps(dict(argument)).decode()]
    command.append(codec.dumps([os.path.abspath(part) for part in sys.path]).decode())
    where = f"{settings.KIND}: {settings.function}"
    try:
        check = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=settings.start_timeout_s,
        )
    except subprocess.TimeoutExpired:
        late = f"{where} was not loaded within {settings.start_timeout_s:g} s"
        raise UsageError(late, hint="raise start_timeout_s or make the file load faster") from None
    if check.returncode != 0:
        said = check.stderr.strip().splitlines()
        reason = said[-1] if said else f"exit code {check.returncode}"
        raise UsageError(f"{where} cannot be used: {reason}", hint="fix the file")


def _local_imports(raw: bytes, source: Path, folder: Path) -> list[Path]:
    found: list[Path] = []
    for node in ast.walk(ast.parse(raw)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _module_files(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = folder
            if node.level:
                start = source.parents[node.level - 1]
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                found += _module_files(start, [*parts, alias.name])
    return [path for path in found if path.is_relative_to(folder)]


def _module_files(start: Path, parts: list[str]) -> list[Path]:
    """The files that importing `a.b.c` runs, as far as they stand under `start`."""
    files: list[Path] = []
    for depth in range(1, len(parts) + 1):
        place = start.joinpath(*parts[:depth])
        files += [place / "__init__.py", place.with_suffix(".py")]
    return [path for path in files if path.is_file()]
