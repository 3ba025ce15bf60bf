"""The half of a draw that may spend: a sampler behind its limits, journalled step by step.

The order is a promise: `sent` before the call, the completion before the slot is free. What a
provider raises stops here and becomes a failure record; nothing is scored here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import LabelkitError, ProviderError, UsageError
from labelkit.ledger import Writer
from labelkit.ledger_index import Index, Totals
from labelkit.limits import Fleet, Halt, Halted, Spend
from labelkit.records import (
    NONCE_PLACEHOLDER,
    Attempt,
    Call,
    Completion,
    DrawKey,
    Failure,
    NotRun,
    Outcome,
    Request,
    Task,
)
from labelkit.seams import Sampler
from labelkit.served import Served
from labelkit.tab import KEPT, Tab, WorstCases, tokens_of


class Observer(Protocol):
    """Told of progress while a run is live; must be quick and must not raise."""

    def attempt(self, task: Task, attempt: Attempt | NotRun) -> None: ...

    def spent(self, usd: float | None, tokens: int) -> None: ...

    def task(self, outcome: Outcome) -> None: ...


@dataclass
class Live:
    """The side of the draw that may spend: samplers behind their limits, and the ledger's writer.

    `sources` are other runs' ledgers (run id, index), read before anything is bought. `served` maps
    a stage family to the model names that this run's ledger already holds: a reply by another model
    ends the run and is set aside. `endpoints` asks the endpoints themselves: one that was gone and
    came back with another model gets no call.
    """

    run_id: str
    writer: Writer
    samplers: Mapping[str, Sampler]
    fleets: Mapping[str, Fleet]
    halt: Halt
    observer: Observer
    seed: int | None = None
    retry_errors: bool = False
    sources: Sequence[tuple[str, Index]] = ()
    served: Mapping[str, Sequence[str]] = field(default_factory=dict)
    endpoints: Served | None = None
    _worst: WorstCases = field(init=False)
    _fenced: dict[str, bool] = field(default_factory=dict)
    _first_served: dict[str, str] = field(init=False)
    _entered: int = 0
    _moved: asyncio.Future[None] | None = None
    _door: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._worst = WorstCases(self.samplers)
        self._first_served = {stage: names[0] for stage, names in self.served.items() if names}

    async def draw(
        self, task: Task, request: Request, key: DrawKey, role: str
    ) -> tuple[dict[str, Any], Completion | None]:
        """Make one draw and journal it; returns its outcome record, and the completion if it is
        one.

        Raises Halted when the run stopped admitting before the call was made, and where another
        model answered it: the reply is set aside and the draw owed.
        """
        sampler = self.samplers[role]
        call, filled = self.call(task, request, key, role)
        nonce = {} if filled is None else {"nonce": filled}
        tab = self.tab(call, role)

        async def attempt(endpoint: int, _: int) -> tuple[dict[str, Any], Completion | None]:
            if self._moved is not None and not self._moved.done():
                self._moved.set_result(None)  # whoever waits for room looks again
            self.halt.check()
            if self.endpoints is not None and self.endpoints.doubted(role, endpoint):
                await self._confirm(role, endpoint)
            sent = {**tab.send(), **nonce}
            if sampler.paid:
                self.writer.append(self.record("sent", key, **sent))
            try:
                completion = await self._sample(sampler, call, endpoint)
            except ProviderError as error:
                if error.paid:
                    tab.lose()
                if self.endpoints is not None and error.status_code is None:
                    self.endpoints.doubt(role, endpoint)
                raise
            except asyncio.CancelledError:
                tab.lose()
                raise
            if completion is None:
                record = self.record("unavailable", key)
            else:
                record = self.completion_record(key, completion, tab)
                record["provenance"].update(nonce)
                if sampler.endpoints > 1:
                    record["provenance"]["endpoint"] = endpoint
                if call.seed is not None:
                    record["provenance"]["seed"] = call.seed
            self.writer.append(record)
            if completion is not None:
                self._worst.learn(role, tab, completion.usage)
            return record, completion

        def worst() -> tuple[float | None, int | None]:
            tab.worst_usd, tab.worst_tokens, tab.bound = self._worst.of(call, role)
            return tab.worst_usd, tab.worst_tokens

        try:
            if not sampler.paid:
                record, completion = await attempt(0, 1)
            else:
                record, completion = await self.fleets[role].run(
                    attempt,
                    affinity=task.id,
                    worst=worst,
                    spend=_spend,
                )
        except ProviderError as error:
            record = self.failure_record(key, failure_of(error, tab.tries), tab)
        except Halted:
            if tab.tries:  # its tries are over and the draw is not run: only their cost is left
                self.writer.append(self.record("halted", key, **tab.settled(None, None)))
            raise
        except asyncio.CancelledError:
            if tab.tries:
                cancelled = Failure(
                    stop_reason="cancelled",
                    kind="cancelled",
                    error_type="CancelledError",
                    message="the run was stopped while the call was under way",
                    tries=tab.tries,
                    owed=True,
                )
                self.writer.append(self.failure_record(key, cancelled, tab))
            raise
        else:
            if record["kind"] == "set_aside":
                self.observer.spent(record.get("spent_usd"), record.get("spent_tokens") or 0)
                raise Halted("policy_changed")
            return record, completion
        self.writer.append(record)
        return record, None

    async def check_reread(
        self, task: Task, request: Request, key: DrawKey, role: str, record: Mapping[str, Any]
    ) -> None:
        """What a free sampler reads from a file must be what this run verified: an edited file
        would leave verdicts on replies that are nowhere any more. Raises UsageError."""
        sampler = self.samplers[role]
        if sampler.paid or record["kind"] != "completion":
            return
        now = await self._sample(sampler, self.call(task, request, key, role)[0], 0)
        then = Completion.model_validate(record["completion"])
        if now is not None and now.digest != then.digest:
            raise UsageError(
                f"task {task.id}, sample {key.sample_index}: the recorded reply is another one "
                "than this run verified",
                hint="--fresh sets the old run aside; -o starts another beside it",
            )

    def tab(self, call: Call, role: str) -> Tab:
        """What a call may cost, as far as is known by now."""
        if not self.samplers[role].paid:
            return Tab(None, None, paid=False)
        usd, n_tokens, bound = self._worst.of(call, role)
        return Tab(usd, n_tokens, paid=True, bound=bound)

    async def _confirm(self, role: str, endpoint: int) -> None:
        """Ask an endpoint that was gone what it serves now; another model gets no call."""
        assert self.endpoints is not None
        why = await self.endpoints.trouble(role, endpoint)
        if why is None:
            return
        if self.samplers[role].endpoints == 1:
            self.halt.stop("policy_changed", why)
            self.halt.check()
        self.fleets[role].disable(endpoint, why)
        raise ProviderError("transient", why, error_type="another_model")

    async def room(self) -> None:
        """Wait until another task's draws would be next in line for a call.

        So tasks are taken up as fast as their draws go out, whatever K is, and few are half drawn
        when a run stops. One waits at the door, and the others behind it.
        """
        fleet = self.fleets["policy"]
        async with self._door:
            self._entered += 1
            if self._entered % max(1, (self.samplers["policy"].slots or 256) // 8) == 0:
                await asyncio.sleep(0)  # the draws of those who came in before line up
            while fleet.crowded and self.halt.reason is None:
                self._moved = asyncio.get_running_loop().create_future()
                with contextlib.suppress(Halted):
                    await self.halt.wait(self._moved)

    async def _sample(self, sampler: Sampler, call: Call, endpoint: int) -> Completion | None:
        """The foreign border of the provider call: whatever it raises becomes a ProviderError."""
        if endpoint:
            call = replace(call, endpoint=endpoint)
        try:
            return await sampler.sample(call)
        except LabelkitError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:500]
            raise ProviderError("row", message, error_type=type(error).__name__) from error

    def catch_up(self, index: Index) -> Totals:
        """Index all that this run has journalled so far."""
        self.writer.flush()
        return index.catch_up()

    def from_sources(self, task: Task, key: DrawKey) -> list[dict[str, Any]]:
        """What the other runs hold of a draw (outcome and scores), as records for this ledger."""
        slot = (key.stage, key.request, key.sample_index)
        held = [(run_id, index.stored(task.id)) for run_id, index in self.sources]
        for run_id, stored in held:
            completion = stored.completions.get(slot)
            if completion is not None:
                copied: Any = completion["completion"]
                if copied.get("model_served"):
                    self._first_served.setdefault(_family(key), copied["model_served"])
                scores = [record for (at, _), record in stored.scores.items() if at == slot]
                return [_copied(record, run_id) for record in (completion, *scores)]
        for run_id, stored in held:
            failure: Any = stored.failures.get(slot)
            if failure is not None and not failure["failure"]["owed"]:
                return [_copied(failure, run_id)]
        if any(slot in stored.unavailable for _, stored in held):
            return [self.record("unavailable", key)]
        return []

    def call(
        self, task: Task, request: Request, key: DrawKey, role: str
    ) -> tuple[Call, str | None]:
        """The call that a draw makes, and the nonce that was put into it."""
        nonce: str | None = None
        messages, text = request.messages, request.text
        fenced = self._fenced.get(key.request)
        if fenced is None:
            if len(self._fenced) >= KEPT:
                self._fenced.clear()
            fenced = NONCE_PLACEHOLDER.encode() in codec.dumps([*messages, text])
            self._fenced[key.request] = fenced
        if fenced:
            nonce = secrets.token_hex(8)
            messages = tuple(_fill(message, nonce) for message in messages)
            text = text.replace(NONCE_PLACEHOLDER, nonce) if text else None
        seed = None
        if self.seed is not None and self.samplers[role].supports_seed:
            seed = derived_seed(self.seed, key)
        call = Call(request=request, task=task, key=key, messages=messages, text=text, seed=seed)
        return call, nonce

    def record(self, kind: str, key: DrawKey, **fields: JsonValue) -> dict[str, Any]:
        return {
            "kind": kind,
            "task": key.task_id,
            "stage": key.stage,
            "request": key.request,
            "sample_index": key.sample_index,
            **fields,
        }

    def completion_record(self, key: DrawKey, completion: Completion, tab: Tab) -> dict[str, Any]:
        """What the ledger says of a reply. Another model's halts the run and is `set_aside`: kept,
        as it was paid for, but the outcome of no draw."""
        cost_usd, n_tokens = completion.cost_usd, tokens_of(completion.usage)
        return self.record(
            "completion" if self.check_served(key, completion) else "set_aside",
            key,
            completion=completion.as_json(),
            **tab.settled(
                tab.worst_usd if cost_usd is None else cost_usd,
                tab.worst_tokens if n_tokens is None else n_tokens,
            ),
            provenance=self._provenance(tab),
        )

    def failure_record(self, key: DrawKey, failure: Failure, tab: Tab) -> dict[str, Any]:
        return self.record(
            "failure",
            key,
            failure=failure.model_dump(mode="json"),
            **tab.settled(None, None),
            provenance=self._provenance(tab),
        )

    def _provenance(self, tab: Tab) -> dict[str, JsonValue]:
        return {
            "at": _now(),
            "duration_s": round(time.monotonic() - tab.begun_s, 4),
            "tries": tab.tries,
        }

    def check_served(self, key: DrawKey, completion: Completion) -> bool:
        """False, and the run is halted, where another model answered than the first that did."""
        name = completion.model_served
        if name is None:
            return True
        first = self._first_served.setdefault(_family(key), name)
        if name != first:
            self.halt.stop(
                "policy_changed",
                f"the endpoint now serves {name!r}, but this run was sampled from {first!r}; serve "
                "that model again, or start anew with --fresh",
            )
        return name == first


def _family(key: DrawKey) -> str:
    return key.stage.partition("/")[0]


def _copied(record: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Another run's record; a draw tells that it is one, its own run's do not."""
    copy = {**record, "from": run_id}
    if "provenance" in record:
        copy["provenance"] = {"run_id": run_id, **record["provenance"]}
    return copy


def _now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    second, fraction = divmod(time.time(), 1)
    return f"{_to_the_second(int(second))}.{int(fraction * 1000):03d}+00:00"


@lru_cache(maxsize=1)
def _to_the_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def derived_seed(seed: int, key: DrawKey) -> int:
    """The seed of one draw: 31 bits of H(base seed, task, stage, index)."""
    source = codec.canonical([seed, key.task_id, key.stage, key.sample_index])
    return int.from_bytes(hashlib.sha256(source).digest()[:4], "big") >> 1


def _spend(drawn: tuple[dict[str, Any], Completion | None]) -> Spend:
    completion = drawn[1]
    if completion is None:
        return Spend()
    usage = completion.usage
    return Spend(completion.cost_usd, usage.input_tokens, usage.output_tokens)


def failure_of(error: ProviderError, tries: int) -> Failure:
    stop: Any = error.kind if error.kind in ("timeout", "content_filter") else "provider_error"
    return Failure(
        stop_reason=stop,
        kind=error.kind,
        error_type=error.error_type,
        message=codec.clean_text(str(error)),
        status_code=error.status_code,
        tries=tries,
        owed=error.kind == "fatal" or error.outage,
    )


def _fill(message: Any, nonce: str) -> Any:
    if isinstance(message, str):
        return message.replace(NONCE_PLACEHOLDER, nonce)
    if isinstance(message, dict):
        return {name: _fill(value, nonce) for name, value in message.items()}
    if isinstance(message, list):
        return [_fill(value, nonce) for value in message]
    return message
