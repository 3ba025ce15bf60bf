"""`--batch`: the draws that are known in advance, through the provider's batch API.

It fills the ledger and draws nothing else: afterwards the run goes its usual way and finds the
replies there. Nothing is submitted twice: what may have been is written down before, looked for
after a kill, and collected before anything new is planned.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from labelkit import codec, ledger
from labelkit.batch_journal import BatchJournal, Submitted
from labelkit.engine import Rules, TaskDraws
from labelkit.errors import Fault, ProviderError, UsageError
from labelkit.ledger_index import Index
from labelkit.limits import Budget, Clock, Spend
from labelkit.live import Live, failure_of
from labelkit.plan import Plan
from labelkit.prepare import Prepared
from labelkit.records import Completion, DrawKey, Request, Task
from labelkit.samplers import BatchSettings
from labelkit.samplers.batches import BatchApi
from labelkit.samplers.protocol import Unreadable
from labelkit.seams import Sampler
from labelkit.tab import Tab

FAILED_AT_MOST = 3
"""A draw that failed so often in batches is left to the ordinary way."""
CALLS_AT_MOST = 20
"""Calls to the batch API that may fail in a row before the run is stopped."""


@runtime_checkable
class Batched(Protocol):
    """A sampler whose provider has a batch API."""

    def batches(self) -> BatchApi: ...


Announce = Callable[[Task, Request, DrawKey], None]
Missing = Callable[[], Iterator[tuple[Task, Request, list[int]]]]


@dataclass(frozen=True)
class _Row:
    """A submitted draw, as its line of the draws file has it."""

    key: DrawKey
    worst_usd: float | None
    worst_tokens: int | None
    provenance: dict[str, Any]


class Batches:
    """The batches of one run.

    `missing` walks the tasks and the sample indexes that the ledger lacks; `announce` journals a
    request before its first draw; `catch_up` makes new records findable.
    """

    def __init__(
        self,
        directory: Path,
        live: Live,
        api: BatchApi,
        settings: BatchSettings,
        budget: Budget,
        clock: Clock,
        *,
        missing: Missing,
        announce: Announce,
        catch_up: Callable[[], Any],
        say: Callable[[str], None],
    ) -> None:
        self._journal = BatchJournal(directory)
        self._ledger = directory / "ledger.jsonl"
        self._live = live
        self._api = api
        self._settings = settings
        self._budget = budget
        self._clock = clock
        self._missing = missing
        self._announce = announce
        self._catch_up = catch_up
        self._say = say
        self._failed: Counter[DrawKey] = Counter()
        self._reserved: set[int] = set()

    async def run(self) -> None:
        """Submit and collect until nothing is missing that a batch can bring.

        Raises Halted where the run stops meanwhile; what is submitted then stays open.
        """
        await self._collect()
        while await self._submit():
            await self._collect()

    async def _submit(self) -> bool:
        """Send what is missing in files; False: there was nothing to send, or no room for it."""
        self._catch_up()
        sent = False
        file = _Input(self._journal)
        for task, request, indexes in self._missing():
            announced = False
            for index in indexes:
                key = DrawKey(
                    task_id=task.id,
                    stage="candidate",
                    request=request.digest,
                    sample_index=index,
                )
                if self._failed[key] >= FAILED_AT_MOST:
                    continue
                call, nonce = self._live.call(task, request, key, "policy")
                tab = self._live.tab(call, "policy")
                row = self._api.row(call, _custom_id(key))
                if file.n_rows and not self._fits(file, row):
                    await self._send(file, request.api)
                    sent, file = True, _Input(self._journal)
                self._live.halt.check()
                if not self._budget.reserve(tab.worst_usd, tab.worst_tokens, lambda: None):
                    if file.n_rows:
                        await self._send(file, request.api)
                    return sent or file.n_rows > 0
                if not announced:
                    self._announce(task, request, key)
                    announced = True
                provenance: dict[str, Any] = {} if nonce is None else {"nonce": nonce}
                if call.seed is not None:
                    provenance["seed"] = call.seed
                file.add(row, _Row(key, tab.worst_usd, tab.worst_tokens, provenance), request.api)
        if file.n_rows:
            await self._send(file, file.api)
        return sent or file.n_rows > 0

    def _fits(self, file: _Input, row: bytes) -> bool:
        settings = self._settings
        return file.n_rows < settings.max_requests and file.n_bytes + len(row) <= settings.max_bytes

    async def _send(self, file: _Input, api: str) -> None:
        file.close()
        file_id = await self._patiently(lambda: self._api.upload(self._journal.rows(file.number)))
        for row in file.drawn:
            tab = Tab(row.worst_usd, row.worst_tokens, paid=True)
            sent = self._live.record("sent", row.key, **tab.send())
            self._live.writer.append(sent)
        self._live.writer.sync()
        self._reserved.add(file.number)
        self._journal.submitting(file.number, file_id, api)
        batch_id = await self._start(Submitted(file.number, file_id, api, None), fresh=True)
        self._say(f"batch {file.number}: {file.n_rows:,} draws submitted as {batch_id}")

    async def _start(self, submitted: Submitted, *, fresh: bool) -> str:
        """Start a batch that may have been started already; looked for first unless `fresh`."""
        looked_for = not fresh

        async def start() -> str:
            nonlocal looked_for
            found = await self._api.find(submitted.file_id) if looked_for else None
            looked_for = True
            return found or await self._api.submit(submitted.file_id, submitted.api)

        batch_id = str(await self._patiently(start))
        self._journal.submitted(submitted.number, batch_id)
        return batch_id

    async def _collect(self) -> None:
        """Wait for everything that is open and journal what came of it."""
        for submitted in self._journal.open_batches():
            batch_id = submitted.batch_id or await self._start(submitted, fresh=False)
            while True:
                state = await self._patiently(partial(self._api.state, batch_id))
                if state.over:
                    break
                await self._live.halt.sleep(self._settings.poll_s, self._clock)
            lines: list[bytes] = []
            for name in state.files:
                content = await self._patiently(partial(self._api.content, name))
                lines += filter(None, content.split(b"\n"))
            self._take(submitted.number, batch_id, lines, state.trouble)
            self._live.writer.sync()
            self._journal.collected(submitted.number)
            if state.trouble is not None:
                why = f"batch {submitted.number} ({batch_id}) brought nothing: {state.trouble}"
                self._live.halt.stop("fatal", why)
            self._live.halt.check()

    def _take(self, number: int, batch_id: str, lines: list[bytes], trouble: str | None) -> None:
        """Journal every row's outcome once, however often a kill interrupts this."""
        rows = dict(_read_draws(self._journal.draws(number)))
        if number not in self._reserved:  # an earlier process may have begun this
            for taken in self._taken(batch_id):
                rows.pop(taken, None)
        n_rows, n_failed = len(rows), 0
        for line in lines:
            try:
                custom_id, said = self._api.read(line)
            except Unreadable:
                continue
            row = rows.pop(custom_id, None)
            if row is not None:
                n_failed += not self._settle(number, batch_id, row, said)
        absent = ProviderError("transient", trouble or "no result came", error_type="no_result")
        for row in rows.values():
            n_failed += not self._settle(number, batch_id, row, absent)
        self._say(f"batch {number}: {n_rows - n_failed:,} replies, {n_failed:,} failures")

    def _taken(self, batch_id: str) -> Iterator[str]:
        """The rows of a batch whose outcomes are in the ledger."""
        for _, _, record in ledger.records(self._ledger):
            if record.get("batch") == batch_id:
                fields: Any = {name: record[name] for name in ("stage", "request", "sample_index")}
                yield _custom_id(DrawKey(task_id=str(record["task"]), **fields))

    def _settle(
        self, number: int, batch_id: str, row: _Row, said: Completion | ProviderError
    ) -> bool:
        """Journal one row's outcome; False where it brought no reply."""
        live, tab = self._live, Tab(row.worst_usd, row.worst_tokens, paid=True)
        tab.send()
        spend = Spend(usd=0.0, input_tokens=0, output_tokens=0)
        if isinstance(said, Completion):
            price_usd = self._api.price_usd(said.usage)
            if price_usd is None:
                price_usd = live.samplers["policy"].price_usd(said.usage)
            completion = said.model_copy(update={"cost_usd": price_usd})
            record = live.completion_record(row.key, completion, tab)
            usage = said.usage
            spend = Spend(price_usd, usage.input_tokens, usage.output_tokens)
        else:
            if said.paid:
                tab.lose()
            spend = Spend() if said.paid else spend
            if said.kind == "fatal":
                live.halt.stop("fatal", str(said))
            if said.kind in ("transient", "fatal"):  # missing still, and tried again
                record = live.record("halted", row.key, **tab.settled(None, None))
                self._failed[row.key] += 1
            else:
                record = live.failure_record(row.key, failure_of(said, 1), tab)
        if "provenance" in record:
            del record["provenance"]["duration_s"]
            record["provenance"] |= {"batch": batch_id, **row.provenance}
        live.writer.append({**record, "batch": batch_id})
        if number in self._reserved:
            self._budget.settle(row.worst_usd, row.worst_tokens, spend)
        else:
            self._budget.correct(row.worst_usd, row.worst_tokens, spend)
        return isinstance(said, Completion)

    async def _patiently(self, call: Callable[[], Any]) -> Any:
        """One call to the batch API, made again while it fails in passing. Raises Halted."""
        for failed in range(CALLS_AT_MOST):
            try:
                return await call()
            except ProviderError as error:
                if error.kind not in ("transient", "timeout") or failed == CALLS_AT_MOST - 1:
                    said = f"the batch API: {error}"
                    self._live.halt.stop("fatal" if error.kind == "fatal" else "breaker", said)
                    self._live.halt.check()
                wait_s = max(error.retry_after_s or 0.0, min(60.0, 2.0**failed))
                await self._live.halt.sleep(wait_s, self._clock)
        raise AssertionError


class _Input:
    """An input file in the making, and the draws behind its rows."""

    def __init__(self, journal: BatchJournal) -> None:
        self.n_rows = self.n_bytes = 0
        self.number = 0
        self.api = "chat"
        self.drawn: list[_Row] = []
        self._journal = journal
        self._rows: Any = None

    def add(self, row: bytes, drawn: _Row, api: str) -> None:
        if self._rows is None:
            self.number = self._journal.next_number()
            self._rows = open(self._journal.rows(self.number), "wb")  # noqa: SIM115
        self._rows.write(row)
        self.n_rows += 1
        self.n_bytes += len(row)
        self.drawn.append(drawn)
        self.api = api

    def close(self) -> None:
        self._rows.flush()
        os.fsync(self._rows.fileno())
        self._rows.close()
        with open(self._journal.draws(self.number), "wb") as file:
            for row in self.drawn:
                line: list[Any] = [asdict(row.key), row.worst_usd, row.worst_tokens, row.provenance]
                file.write(codec.dumps(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _read_draws(path: Path) -> Iterator[tuple[str, _Row]]:
    with open(path, "rb") as file:
        for line in file:
            fields: Any = codec.loads(line)
            row = _Row(DrawKey(**fields[0]), *fields[1:])
            yield _custom_id(row.key), row


def _custom_id(key: DrawKey) -> str:
    named: list[Any] = [key.task_id, key.stage, key.request, key.sample_index]
    return hashlib.sha256(codec.canonical(named)).hexdigest()[:32]


def unbatched(plan: Plan, sampler: Sampler) -> list[Fault]:
    """Why a spec cannot be drawn in batches."""
    faults: list[Fault] = []
    if plan.spec.adaptive:
        said = "is not for --batch, which sends all draws at once"
        faults.append(plan.document.fault(("adaptive",), said, "set adaptive: false"))
    if not isinstance(sampler, Batched):
        said = f"{plan.sampler.model} has no batch API"
        fix = "use openai/…, hosted_vllm/…, or leave --batch out"
        faults.append(plan.document.fault(("sampler", "model"), said, fix))
        return faults
    try:
        sampler.batches()
    except UsageError as error:
        faults.append(plan.document.fault(("sampler", "model"), str(error), error.hint))
    return faults


def refuse_open(directory: Path) -> None:
    """A run with open batches must collect them: drawn otherwise, they would be bought twice."""
    n_open = len(BatchJournal(directory).open_batches())
    if n_open:
        raise UsageError(
            f"{directory}: {n_open} batches were submitted and are not collected yet",
            hint="run the same command with --batch, which collects them",
        )


def batches_of(
    prepared: Prepared,
    live: Live,
    index: Index,
    rules: Rules,
    budget: Budget,
    say: Callable[[str], None],
) -> Batches:
    """The batches of a run that `unbatched` has nothing against."""
    plan, sampler = prepared.plan, live.samplers["policy"]
    recipe = plan.recipe()
    assert isinstance(sampler, Batched)

    def missing() -> Iterator[tuple[Task, Request, list[int]]]:
        for task in prepared.tasks():
            request, k = recipe.candidates(task)
            held: set[int] = set()
            for each in (index, *(source for _, source in live.sources)):
                held |= each.stored(task.id).final("candidate", request.digest)
            yield task, request, [number for number in range(k) if number not in held]

    def announce(task: Task, request: Request, key: DrawKey) -> None:
        TaskDraws(task, index.stored(task.id), rules, live).announce(request, key)

    return Batches(
        prepared.directory,
        live,
        sampler.batches(),
        plan.sampler.batch,
        budget,
        asyncio.get_running_loop(),
        missing=missing,
        announce=announce,
        catch_up=partial(live.catch_up, index),
        say=say,
    )
