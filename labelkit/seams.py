"""The four seams as protocols: Draw, Sampler, Scorer, Recipe. Each has several members elsewhere.

Nothing here does work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

from pydantic import JsonValue as Json

from labelkit.records import (
    Attempt,
    Call,
    Completion,
    NotRun,
    Outcome,
    Reply,
    Request,
    Sampled,
    Task,
    Usage,
    Verdict,
)


class Draw(Protocol):
    """The durable draw: found in the ledger, it is read back; else it is sampled and journalled.

    `role` names the sampler (`policy`, `judge`). `draw(…)` is `sample` and then `score`.
    A cancelled run surfaces as NotRun, never as an exception. `waits`: draws may have to wait for
    a model, so that asking for several at once is faster.
    """

    @property
    def waits(self) -> bool: ...

    async def __call__(
        self, request: Request, *, stage: str = "candidate", sample_index: int
    ) -> Attempt | NotRun: ...

    async def sample(
        self, request: Request, *, stage: str, sample_index: int, role: str = "policy"
    ) -> Sampled | NotRun: ...

    async def score(self, sampled: Sampled) -> Attempt | NotRun: ...


class Sampler(Protocol):
    """Turns a call into a completion.

    `paid`: calls cost something, so each is announced in the ledger before it is made.
    `supports_seed`: a derived seed may be sent. `endpoints`: how many replicas it has. `slots`: the
    most calls in flight at one endpoint (the spec's `concurrency`, or its own), None: unknown.
    """

    paid: bool
    endpoints: int

    @property
    def slots(self) -> int | None: ...

    @property
    def supports_seed(self) -> bool: ...

    async def sample(self, call: Call) -> Completion | None:
        """One try, bounded by the sampler's own timeout. None: there is no such sample (recorded).

        Raises ProviderError for everything that is not a reply; never retries by itself.
        """
        ...

    def price_usd(self, usage: Usage) -> float | None:
        """What so many tokens cost in one call, None where the price or a count is unknown."""
        ...

    def check(self, request: Request) -> list[str]:
        """What is wrong with sending such a request (parameters the model does not take, missing
        key or library), one clear sentence each, before anything is spent."""
        ...

    async def served(self, endpoint: int) -> str | None:
        """What an endpoint says it serves (root or id in /v1/models); None where it does not."""
        ...

    async def close(self) -> None: ...


class Scorer(Protocol):
    """Turns a reply into a verdict. Three outcomes: passed, failed, abstained.

    `fingerprint` is canonical data: kind, VERSION, settings, hashes of user code and versions of
    verifier libraries. `reads` names the task's fields that the verdict depends on besides gold.
    """

    fingerprint: dict[str, Json]
    reads: frozenset[str]

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        """May raise anything; the engine turns it into `scorer_error`. Never blocks the loop."""
        ...

    def check_gold(self, task: Task) -> str | None:
        """Why this task's gold cannot be used by this scorer, or None. Pure and fast."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Chooser(Protocol):
    """A recipe whose kept set is a choice over all tasks (`top`): where `chooses` is true, every
    outcome is shown to `consider` in task order, then `choose` is called, then the recipe runs
    again over the same ledger. Both passes draw nothing."""

    @property
    def chooses(self) -> bool: ...

    def consider(self, outcome: Outcome) -> None: ...

    def choose(self) -> None: ...


RecipeFunction = Callable[[Task, Draw], Awaitable[Outcome]]


class Recipe(Protocol):
    """What a subcommand does with a task: which draws it asks for, which rows come out."""

    async def __call__(self, task: Task, draw: Draw) -> Outcome: ...

    def candidates(self, task: Task) -> tuple[Request, int]:
        """The candidate request of a task and how many draws of it are planned."""
        ...

    def summarise(self, outcome: Outcome) -> None:
        """Take one outcome, in task order, into the command's own `detail` of the summary."""
        ...

    def detail(self) -> Mapping[str, Json]: ...
