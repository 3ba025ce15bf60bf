"""`command`: a program of the user's, in any language, decides.

It runs for the whole run: one JSON object on a line in, one on a line out, a wall clock a call. It
is the user's code and not sandboxed: a spec may name it only where --allow-code was given.

In: {"id": 7, "task": {id, prompt, gold, metadata}, "reply": {text, reasoning, parsed, …}}.
Out: {"id": 7, "value": 0.5} and, where wanted, `passed`, `reason`, `answer`, `detail`;
{"id": 7, "abstained": true, "reason": "…"} where it cannot decide; {"id": 7, "error": "…"} for a
fault. The id must be the one asked for: a program that answers out of turn is never believed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, JsonValue

from labelkit.errors import UsageError
from labelkit.records import Reply, Task, Verdict
from labelkit.sandbox.keeper import KeeperSettings
from labelkit.sandbox.pool import WorkerPool
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.user_code import RewardError, read_verdict, require_allow_code
from labelkit.seams import Draw


class CommandSettings(ScorerSettings):
    """`command: [program, argument, …]`, run in the spec's folder, without a shell.

    `pass_threshold`: the value from which an attempt has passed, where the program does not say.
    `timeout_s`: wall clock of one call; the first also has `start_timeout_s`.
    """

    KIND: ClassVar[str] = "command"
    SHORT: ClassVar[str | None] = "argv"

    argv: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    pass_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    timeout_s: Annotated[float, Field(gt=0)] = 30.0
    start_timeout_s: Annotated[float, Field(gt=0)] = 120.0

    def bind(self, binding: Binding) -> CommandScorer:
        require_allow_code(binding, self.KIND, " ".join(self.argv))
        folder = binding.folder.resolve()
        program = self.argv[0]
        found = shutil.which(str(folder / program) if "/" in program else program)
        if found is None:
            raise UsageError(
                f"command: `{program}` is not a program that can be run",
                hint="give a program on PATH, or a path from the spec's folder (chmod +x it)",
            )
        return CommandScorer(self, [found, *self.argv[1:]], folder, binding.processes)


class CommandScorer:
    """A bound program and its running copies."""

    def __init__(
        self, settings: CommandSettings, argv: list[str], folder: Path, processes: int
    ) -> None:
        self._settings = settings
        self._ids = itertools.count(1)
        keeper = KeeperSettings(argv=tuple(argv), start_timeout_s=settings.start_timeout_s)
        self._pool = WorkerPool(
            keeper, workers=processes, environment=os.environ, folder=str(folder)
        )
        self.reads = frozenset({"id", "prompt", "metadata"})
        self.fingerprint: dict[str, JsonValue] = {
            **settings.identity,
            "code": _file_hashes(settings.argv, folder),
        }

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        """Raises RewardError or the pool's WorkerError where there is no verdict."""
        call_id = next(self._ids)
        message: dict[str, JsonValue] = {
            "id": call_id,
            "task": task.model_dump(mode="json"),
            "reply": reply.model_dump(mode="json"),
        }
        answer = await self._pool.call(message, self._settings.timeout_s)
        if not isinstance(answer, dict) or answer.pop("id", None) != call_id:
            raise RewardError(f'answered without the "id": {call_id} that it was asked with')
        if "error" in answer:
            raise RewardError(str(answer["error"]))
        return read_verdict(answer, self._settings.pass_threshold)

    def check_gold(self, task: Task) -> str | None:
        """Any gold, or none, may be what the program expects."""
        return None

    async def close(self) -> None:
        await self._pool.close()


def _file_hashes(argv: list[str], folder: Path) -> dict[str, JsonValue]:
    """sha256 of every file under the spec's folder that the command line names."""
    hashes: dict[str, JsonValue] = {}
    for argument in argv:
        path = (folder / argument).resolve()
        if path.is_relative_to(folder) and path.is_file():
            hashes[argument] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes
