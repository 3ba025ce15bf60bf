"""One run directory from open to finish: lock, identity, ledger, draws, rows, summary.

The order is the promise: everything that can be wrong is looked at before the directory is made,
the directory before the first call, every call before its score, all draws before the rows. A run
may be killed between any two of these steps; the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from labelkit import __version__, codec, ledger
from labelkit.batch import batches_of, refuse_open, unbatched
from labelkit.directory import (
    FILES,
    no_trace_if_refused,
    open_directory,
    read_identity,
    read_json,
    redact,
    refuse_changes,
    write_whole,
)
from labelkit.engine import replay, run_tasks, watch_canaries
from labelkit.errors import LedgerCorruptError, SpecError, UsageError
from labelkit.finish import Ending, finalise, inputs_digest
from labelkit.fleets import open_fleets
from labelkit.interrupts import Signals, stopped
from labelkit.ledger import Writer
from labelkit.ledger_index import Index, Totals
from labelkit.limits import Budget, Fleet, Halt, Halted
from labelkit.live import Live, Observer
from labelkit.loop import calm_collector, fastest_loop
from labelkit.pilot import Pilot, choose
from labelkit.prepare import Prepared, refuse_fewer, sampler_fault
from labelkit.prices import dearest, unpriced
from labelkit.prompt import Renderer
from labelkit.samplers.endpoints import shown_urls
from labelkit.seams import Sampler
from labelkit.served import Served
from labelkit.sources import check_sources, open_source, siblings

DRAIN_S = 30.0


class Progress(Observer, Protocol):
    """Told of the whole run's course, for the display."""

    def message(self, text: str) -> None: ...

    def start(self, n_tasks: int, k: int, fleets: dict[str, Fleet]) -> None: ...

    def finish(self) -> None: ...


def execute(prepared: Prepared, progress: Progress) -> dict[str, Any]:
    """Do the run, or what is left of it; returns the summary (with its `exit_code`)."""
    finished = _finished(prepared)
    if finished is not None:
        progress.message(f"{prepared.directory}: complete, nothing to do")
        return finished
    for warning in prepared.plan.warnings:
        progress.message(f"warning: {warning}")
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(_Run(prepared, progress).execute())


def _finished(prepared: Prepared) -> dict[str, Any] | None:
    """The summary of a run that is complete and would come out the same, else None."""
    options = prepared.options
    path = prepared.directory / "summary.json"
    if options.fresh or options.repair or options.retry_errors or not path.exists():
        return None
    try:
        summary = read_json(path)
        provenance: Any = summary["provenance"]
    except (UsageError, KeyError):
        return None  # made anew from the ledger
    if not provenance.get("complete") or provenance.get("inputs") != inputs_digest(prepared):
        return None
    if not all((prepared.directory / name).exists() for name in FILES):
        return None
    return summary


class _Run:
    """The state of one process's work on one run directory."""

    def __init__(self, prepared: Prepared, progress: Progress) -> None:
        self.prepared = prepared
        self.plan = prepared.plan
        self.options = prepared.options
        self.progress = progress
        self.halt = Halt()
        self.signal: int | None = None
        self.pilot: dict[str, Any] | None = None
        self.begun = time.monotonic()

    async def execute(self) -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            samplers = self.plan.open_samplers(may_buy=not self.options.never_buy)
            for sampler in samplers.values():
                stack.push_async_callback(sampler.close)
            stack.push_async_callback(self.plan.scorer.close)
            self._check_samplers(samplers)
            directory = self.prepared.directory
            is_new = not directory.exists()
            lock = open_directory(directory, fresh=self.options.fresh)
            stack.callback(lock.release)
            identity = self._identity(directory)
            if not self.options.batch:
                refuse_open(directory)
            writer, index, totals = self._open_ledger(directory, samplers["policy"].paid)
            stack.callback(index.close)
            try:
                with no_trace_if_refused(directory if is_new else None):
                    sources = [open_source(path, directory) for path in self.options.sources]
                    for _, source in sources:
                        stack.callback(source.close)
                    await check_sources(
                        self.prepared,
                        sources,
                        index,
                        self.progress.message,
                        buys=samplers["policy"].paid,
                    )
                    if is_new and not sources and samplers["policy"].paid:
                        self._tell_of_siblings()
                    served = await self._check_served(samplers, directory, identity)
                run_id = identity["run_id"]
                await self._sample(samplers, writer, index, totals, sources, run_id, served)
            finally:
                writer.close()
            ending = Ending(
                self.halt.reason,
                self.halt.detail,
                self.signal,
                time.monotonic() - self.begun,
                self.pilot,
            )
            return await finalise(self.prepared, index, identity, self.prepared.rules, ending)

    def _tell_of_siblings(self) -> None:
        """Before anything is bought: other runs may hold these very draws."""
        for sibling in siblings(self.prepared):
            self.progress.message(f"{sibling} holds draws of the same requests: --from reuses them")

    def _check_samplers(self, samplers: dict[str, Sampler]) -> None:
        """Ask every sampler about its first request; refuse a budget that cannot be kept."""
        task = next(self.prepared.tasks(), None)
        if task is None:
            raise UsageError(
                f"{self.plan.stream.shown}: no task is left to run",
                hint="check `where`, --task, --limit and the task file",
            )
        faults = [
            sampler_fault(self.plan.document, self.plan.sampler_at(role), problem)
            for role, settings in self.plan.sampler_settings.items()
            for problem in samplers[role].check(Renderer(settings).render(task))
        ]
        faults += unpriced(self.plan, samplers)
        if self.options.batch:
            faults += unbatched(self.plan, samplers["policy"])
        if faults:
            raise SpecError(faults)

    def _identity(self, directory: Path) -> dict[str, Any]:
        """Compare with the run's own record, or make it."""
        path = directory / "run.json"
        now = {
            "command": self.plan.command,
            "reply": self.plan.reply_identity,
            "score": self.plan.score_identity,
        }
        if path.exists():
            kept = read_identity(directory)
            refuse_changes(directory, kept, now)
            refuse_fewer(self.prepared)
            return kept
        identity: dict[str, Any] = {
            "run_id": datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3),
            "labelkit_version": __version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
            "name": self.plan.spec.name,
            **now,
            "env": self.plan.env_parts(self.prepared.survey.digest),
            "spec": redact(self.plan.document.values),
            "overrides": redact(dict(self.plan.document.overrides)),
            "spec_file": self.plan.document.shown,
            "unsafe_no_sandbox": self.options.permissions.unsafe_no_sandbox,
        }
        write_whole(path, codec.pretty(identity))
        return identity

    def _open_ledger(self, directory: Path, paid: bool) -> tuple[Writer, Index, Totals]:
        path = directory / "ledger.jsonl"
        if self.options.repair and path.exists():
            damaged = ledger.repair(path)
            self.progress.message(
                f"{path}: {damaged} damaged records moved to ledger.jsonl.damaged"
            )
        writer = Writer(
            path,
            sync_records=ledger.SYNC_EVERY_RECORDS if paid else None,
            on_blocked=lambda why: self.halt.stop("disk", why),
        )
        index = Index(path, directory / "index.sqlite")
        try:
            return writer, index, index.catch_up()
        except LedgerCorruptError:
            index.close()
            writer.close()
            raise

    async def _check_served(
        self, samplers: dict[str, Sampler], directory: Path, identity: dict[str, Any]
    ) -> Served:
        """The endpoints must serve one model a role, and what they served when the run began."""
        before = identity.get("served", {})
        urls = {role: shown_urls(each) for role, each in self.plan.sampler_settings.items()}
        served = Served(samplers, urls, before)
        await served.check(directory)
        if served.names != before:
            identity["served"] = served.names
            write_whole(directory / "run.json", codec.pretty(identity))
        return served

    async def _sample(
        self,
        samplers: dict[str, Sampler],
        writer: Writer,
        index: Index,
        totals: Totals,
        sources: list[tuple[str, Index]],
        run_id: str,
        served: Served,
    ) -> None:
        budget = Budget(
            self.plan.spec.budget,
            self.halt,
            spent_usd=totals.spent_usd + dearest(samplers.values(), totals.unpriced_tokens),
            cap_tokens=self.plan.spec.max_tokens_total,
            spent_tokens=totals.spent_tokens,
        )
        clock = asyncio.get_running_loop()
        fleets = open_fleets(self.plan.sampler_settings, samplers, self.halt, budget, clock)
        calm_collector()
        live = Live(
            run_id=run_id,
            writer=writer,
            samplers=samplers,
            fleets=fleets,
            halt=self.halt,
            observer=self.progress,
            seed=self.plan.sampler.seed,
            retry_errors=self.options.retry_errors,
            sources=sources,
            served=totals.served,
            endpoints=served,
        )
        rules = self.prepared.rules
        workers = _workers(samplers["policy"])

        async def all_work() -> None:
            planted = self.prepared.canaries
            for canary, sighting in zip(
                planted,
                await watch_canaries(planted, rules, index, live, workers=workers),
                strict=True,
            ):
                if sighting.holds is False:
                    self.progress.message(f"{canary.id} fails: see `canaries` in summary.json")
            if self.options.pilot is not None:
                await self._pilot(self.options.pilot, live, index, fleets, workers)
                if self.halt.reason is not None:
                    return
            if self.options.batch:
                with contextlib.suppress(Halted):
                    say = self.progress.message
                    await batches_of(self.prepared, live, index, rules, budget, say).run()
                live.catch_up(index)
            self.progress.start(self.prepared.n_tasks, self.plan.spec.k, fleets)
            tasks = self.prepared.tasks()
            await run_tasks(tasks, self.plan.recipe(), rules, index, live, workers=workers)

        work = asyncio.create_task(all_work())
        ticking = asyncio.create_task(_tick(writer, self.halt))
        try:
            with self._signals(work, fleets):
                await self._drained(work)
        finally:
            ticking.cancel()
            self.progress.finish()

    async def _pilot(
        self, n: int, live: Live, index: Index, fleets: dict[str, Fleet], workers: int
    ) -> None:
        """Run n random tasks in full, say what they tell of the whole, and stop where asked to."""
        chosen = choose(self.prepared.tasks(), n)
        pilot = Pilot(n_tasks=self.prepared.n_tasks)
        recipe, rules, begun = self.plan.recipe(), self.prepared.rules, time.monotonic()
        before = live.catch_up(index).sent
        self.progress.start(len(chosen), self.plan.spec.k, fleets)
        await run_tasks(iter(chosen), recipe, rules, index, live, workers=workers)
        self.progress.finish()
        if live.catch_up(index).sent > before:
            pilot.duration_s = time.monotonic() - begun
        await replay(iter(chosen), recipe, rules, index, pilot.take)
        for line in pilot.lines():
            self.progress.message(line)
        self.pilot = pilot.as_json()
        condition = pilot.stopped_by(self.prepared.stop_if)
        if condition is not None and self.halt.reason is None:
            self.halt.stop("pilot", condition)

    async def _drained(self, work: asyncio.Task[None]) -> None:
        """Wait for the work; once interrupted, what is in flight has DRAIN_S to come in."""
        stopping = asyncio.create_task(stopped(self.halt))
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self.halt.reason == "interrupted":
                await asyncio.wait({work}, timeout=DRAIN_S)
                work.cancel()
            try:
                await work
            except asyncio.CancelledError:
                if self.signal is None:
                    raise
        finally:
            stopping.cancel()

    def _signals(self, work: asyncio.Task[None], fleets: dict[str, Fleet]) -> Signals:
        def first(number: int) -> None:
            self.signal = number
            states = [state for fleet in fleets.values() for state in fleet.snapshot()]
            whys = dict.fromkeys(each.why for each in states if each.status == "open")
            said = [f"stopped by {signal.Signals(number).name}", *whys]
            self.halt.stop("interrupted", "; ".join(said))
            self.progress.message(
                f"stopping: up to {DRAIN_S:.0f} s for the calls in flight; again to stop now"
            )

        return Signals(first, lambda number: work.cancel())


async def _tick(writer: Writer, halt: Halt) -> None:
    while True:
        await asyncio.sleep(1.0)
        try:
            writer.tick()
        except OSError as error:  # nobody waits for this task: the run itself must hear of it
            halt.stop("disk", f"the ledger: {error.strerror}")
            raise


def _workers(sampler: Sampler) -> int:
    """Tasks under way at once: enough to fill every slot even where a task draws one by one and
    where all that were in flight wait out a long Retry-After. `room` holds back whom none needs."""
    if not sampler.paid:
        return 16
    return 4 * (sampler.slots or 256) * sampler.endpoints
