"""The live display: what a run is doing, on stderr, bounded in height and in memory.

On a terminal a grid of the newest tasks over a status line, drawn four times a second; piped, a
line now and then. Counting an attempt costs microseconds and draws nothing. It never decides
anything, and whatever a stranger wrote is plain text here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from labelkit.records import Attempt, NotRun, Outcome, Task
from labelkit.report.grid import GLYPHS, LEGEND, MAX_GLYPHS, NOT_RUN, cell, glyphs
from labelkit.report.text import money, percent, plain, seconds

if TYPE_CHECKING:
    from labelkit.limits import Fleet
    from labelkit.run import Progress

MAX_ROWS = 16
DRAW_EVERY_S = 0.25
LINE_EVERY_S = 10.0
WINDOW_S = 30.0
_ID_CELLS = 20


@contextlib.contextmanager
def display(quiet: bool, stream: IO[str] | None = None) -> Iterator[Progress]:
    """A `run.Progress` for the life of a run, on stderr unless told otherwise."""
    if quiet:
        yield Silent()
        return
    stream = cast(IO[str], _Unwatched(stream or sys.stderr))
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    watch: Lines = Grid(stream, console) if console.is_terminal else Lines(stream)
    try:
        yield watch
    finally:
        watch.finish()


class _Unwatched:
    """A stream whose reader may go away: a run is not ended by who watches it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Silent:
    """Progress that says nothing."""

    def message(self, text: str) -> None: ...

    def start(self, n_tasks: int, k: int, fleets: dict[str, Fleet]) -> None: ...

    def attempt(self, task: Task, attempt: Attempt | NotRun) -> None: ...

    def spent(self, usd: float | None, tokens: int) -> None: ...

    def task(self, outcome: Outcome) -> None: ...

    def finish(self) -> None: ...


class Counts:
    """A run's course in numbers; memory grows with the tasks under way, never with those done.

    `done` counts draws as far as planned ones go: all of a finished task but for those that were
    not run, the attempts so far of one under way. Rates are over the last `WINDOW_S` seconds.
    """

    def __init__(self, n_tasks: int, k: int, now_s: float) -> None:
        self.n_tasks = n_tasks
        self.k = k
        self.n_done_tasks = 0
        self.states = dict.fromkeys(GLYPHS, 0)
        self.n_not_run = 0
        self.cost_usd: float | None = None
        self.tokens = 0
        self.under_way: dict[str, tuple[int, str]] = {}
        self.finished: deque[tuple[str, str]] = deque(maxlen=MAX_ROWS)
        self._begun_s = now_s
        self._n_under_way = 0
        self._n_done = 0
        self._drawing = False
        self._marks: deque[tuple[float, int, int]] = deque([(now_s, 0, 0)])

    def attempt(self, task_id: str, attempt: Attempt | NotRun) -> None:
        if isinstance(attempt, NotRun):
            self.n_not_run += 1
            glyph, made = NOT_RUN, 0
        else:
            self.states[attempt.state] += 1
            glyph, made = GLYPHS[attempt.state], 1
        n, seen = self.under_way.get(task_id, (0, ""))
        self.under_way[task_id] = n + made, (seen + glyph)[-MAX_GLYPHS:]
        self._n_under_way += made

    def task(self, outcome: Outcome) -> None:
        self.n_done_tasks += 1
        n, _ = self.under_way.pop(outcome.task_id, (0, ""))
        self._n_under_way -= n
        self._n_done += self.k - min(self.k, len(outcome.not_run))
        states = [attempt.state for attempt in outcome.attempts]
        self.finished.append((outcome.task_id, glyphs(states, len(outcome.not_run))))

    def spent(self, usd: float | None, tokens: int, now_s: float) -> None:
        """Count one draw that was made. What was read back before the first says nothing of the
        speed."""
        if not self._drawing:
            self._drawing = True
            self._marks = deque([(now_s, self.done, self.tokens)])
        self.tokens += tokens
        if usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + usd

    @property
    def done(self) -> int:
        return self._n_done + self._n_under_way

    def elapsed_s(self, now_s: float) -> float:
        return now_s - self._begun_s

    def mark(self, now_s: float) -> None:
        """Note where the run stands; about once a second is enough."""
        if now_s - self._marks[-1][0] < 1.0:
            return
        self._marks.append((now_s, self.done, self.tokens))
        while now_s - self._marks[0][0] > WINDOW_S and len(self._marks) > 2:
            self._marks.popleft()

    def status(self, now_s: float) -> str:
        """Counts, rate, speed, cost and time left in one line."""
        planned = self.n_tasks * self.k
        n_scored = self.states["passed"] + self.states["failed"]
        parts = [
            f"{self.done:,}/{planned:,} draws",
            f"{self.n_done_tasks:,}/{self.n_tasks:,} tasks",
        ]
        if n_scored:
            parts.append(f"{percent(self.states['passed'] / n_scored)} passed")
        if self.states["unscored"]:
            parts.append(f"{self.states['unscored']:,} unscored")
        if self.n_not_run:
            parts.append(f"{self.n_not_run:,} not run")
        since_s, done, tokens = self._marks[0]
        window_s = max(now_s - since_s, 1e-9)
        speed = (self.done - done) / window_s
        if speed > 0:
            parts.append(f"{speed:,.1f} draws/s")
        if self.tokens > tokens:
            parts.append(f"{(self.tokens - tokens) / window_s:,.0f} tokens/s")
        if self.cost_usd is not None:
            parts.append(f"{money(self.cost_usd)} in this session")
        left = planned - self.done - self.n_not_run
        if self.done and left > 0 and speed > 0:
            parts.append(f"ETA {seconds(left / speed)}")
        return " · ".join(parts)

    def rows(self, n: int) -> list[tuple[str, str]]:
        """(id, glyphs) of the newest tasks: finished ones, then those under way."""
        going = [
            (task_id, marks) for task_id, (_, marks) in itertools.islice(self.under_way.items(), n)
        ]
        room = n - len(going)
        return [*(list(self.finished)[-room:] if room else []), *going]


def limits_text(fleets: Mapping[str, Fleet]) -> str:
    """How many calls are in flight, what the limit is, and why it last moved; one part a role."""
    parts: list[str] = []
    for role, fleet in fleets.items():
        states = fleet.snapshot()
        in_flight, limit = sum(s.in_flight for s in states), sum(s.limit for s in states)
        named = f"{role}: " if len(fleets) > 1 else ""
        troubled = [s for s in states if s.status != "ok"]
        telling = troubled or list(states)
        why = "; ".join(dict.fromkeys(_why(s.status, s.why) for s in telling))
        parts.append(f"{named}{in_flight}/{limit} in flight ({why})")
    return " · ".join(parts)


def _why(status: str, why: str) -> str:
    return why if status == "ok" else f"{status}: {why}"


class Lines(Silent):
    """Progress for a pipe or a log: a line at most every `LINE_EVERY_S`, ever rarer as the run goes
    on, and one at the end. Lives in the run's event loop, so that nothing here needs a lock."""

    _tick_s = 1.0

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._counts: Counts | None = None
        self._fleets: Mapping[str, Fleet] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_line_s = 0.0

    def message(self, text: str) -> None:
        self._write(text)

    def start(self, n_tasks: int, k: int, fleets: dict[str, Fleet]) -> None:
        """To be called in the running event loop."""
        now_s = time.monotonic()
        before = self._counts  # of the pilot: its money is the session's too
        self._counts = Counts(n_tasks, k, now_s)
        self._counts.cost_usd = before.cost_usd if before else None
        self._fleets = fleets
        self._next_line_s = now_s + LINE_EVERY_S
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def attempt(self, task: Task, attempt: Attempt | NotRun) -> None:
        if self._counts is not None:
            self._counts.attempt(task.id, attempt)

    def spent(self, usd: float | None, tokens: int) -> None:
        if self._counts is not None:
            self._counts.spent(usd, tokens, time.monotonic())

    def task(self, outcome: Outcome) -> None:
        if self._counts is not None:
            self._counts.task(outcome)

    def finish(self) -> None:
        if self._timer is None or self._counts is None:
            return
        self._timer.cancel()
        self._timer = None
        self._last(self._counts, time.monotonic())

    def _tick(self) -> None:
        assert self._counts is not None
        now_s = time.monotonic()
        self._counts.mark(now_s)
        self._draw(self._counts, now_s)
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _draw(self, counts: Counts, now_s: float) -> None:
        if now_s < self._next_line_s:
            return
        self._next_line_s = now_s + max(LINE_EVERY_S, counts.elapsed_s(now_s) / 20)
        self._write(f"{counts.status(now_s)} · {limits_text(self._fleets)}")

    def _last(self, counts: Counts, now_s: float) -> None:
        self._write(f"{counts.status(now_s)} · {seconds(counts.elapsed_s(now_s))}")

    def _write(self, text: str) -> None:
        self._stream.write(plain(text) + "\n")
        self._stream.flush()


class Grid(Lines):
    """Progress on a terminal: the newest tasks as rows of glyphs over the status."""

    _tick_s = DRAW_EVERY_S

    def __init__(self, stream: IO[str], console: Console) -> None:
        super().__init__(stream)
        self._console = console
        self._live: Live | None = None

    def start(self, n_tasks: int, k: int, fleets: dict[str, Fleet]) -> None:
        super().start(n_tasks, k, fleets)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._live.start()

    def _draw(self, counts: Counts, now_s: float) -> None:
        assert self._live is not None
        height = min(MAX_ROWS, max(1, self._console.height - 6))
        rows = [f"{cell(each, _ID_CELLS)}  {marks}" for each, marks in counts.rows(height)]
        lines = [*rows, LEGEND, counts.status(now_s), limits_text(self._fleets)]
        texts = (Text(plain(line), no_wrap=True, overflow="ellipsis") for line in lines)
        self._live.update(Group(*texts), refresh=True)

    def _last(self, counts: Counts, now_s: float) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        super()._last(counts, now_s)

    def _write(self, text: str) -> None:
        self._console.print(Text(plain(text)))
