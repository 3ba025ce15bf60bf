"""The grid of a run: one line a task, one glyph an attempt, and the histogram for many tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from labelkit.report.text import number, percent, plain, span
from labelkit.stats import BINS, curriculum_bin

GLYPHS = {"passed": "█", "failed": "░", "unscored": "▲"}
NOT_RUN = "·"
LEGEND = "█ passed  ░ failed  ▲ unscored  · not run"

MAX_GLYPHS = 40
MAX_ID = 28
MAX_BARS = 17
BAR = 40


def glyphs(states: Sequence[str], n_not_run: int = 0) -> str:
    """A glyph an attempt in sample order, at most `MAX_GLYPHS`."""
    shown = [GLYPHS[state] for state in states[:MAX_GLYPHS]]
    shown += [NOT_RUN] * min(n_not_run, MAX_GLYPHS - len(shown))
    more = "…" if len(states) + n_not_run > MAX_GLYPHS else ""
    return "".join(shown) + more


def id_width(ids: Iterable[str]) -> int:
    """The cells that a column of ids needs, at most `MAX_ID`."""
    return min(MAX_ID, max((cell_len(plain(each)) for each in ids), default=0))


def cell(text: str, width: int) -> str:
    """Plain text padded or cut to exactly `width` terminal cells."""
    text = plain(text)
    return set_cell_size(text if cell_len(text) <= width else text[: width - 1] + "…", width)


def task_row(line: Mapping[str, Any], width: int, k: int) -> str:
    """A line of tasks.jsonl for people; `width` cells for the id, `k` for the glyphs."""
    states = [outcome["state"] for outcome in line["outcomes"]]
    row = (
        f"{cell(line['id'], width)}  {glyphs(states, line['n_not_run']):<{min(k, MAX_GLYPHS)}}  "
        f"{line['n_passed']:>3}/{line['n_scored']:<3} {percent(line['pass_rate']):>6}  "
        f"{span(line['pass_rate_interval']):<12} {standing(line)}"
    )
    return row.rstrip()


def standing(line: Mapping[str, Any]) -> str:
    """What became of a task, in a word or two: its kind by pass count, and why it gave no row."""
    said = [str(line["status"])] if line["status"] in ("not_run", "under way") else []
    if line["n_scored"]:
        said.append(kind(line["n_passed"], line["n_scored"]))
    if line["n_unscored"]:
        said.append(f"{line['n_unscored']} unscored")
    if line["status"] in ("dropped", "undecided") and line["reason"]:
        said.append(f"{line['status']}: {plain(str(line['reason']))}")
    return ", ".join(said).replace("_", " ")


def kind(n_passed: int, n_scored: int) -> str:
    """saturated (all passed), mixed, hopeless (none), undecided (nothing scored)."""
    if not n_scored:
        return "undecided"
    if n_passed in (0, n_scored):
        return "saturated" if n_passed else "hopeless"
    return "mixed"


class Histogram:
    """Tasks by how many of their attempts passed; by bins of the pass rate where K is large."""

    def __init__(self) -> None:
        self._shapes: Counter[tuple[int, int]] = Counter()

    def add(self, n_passed: int, n_scored: int) -> None:
        self._shapes[n_passed, n_scored] += 1

    def lines(self) -> list[str]:
        """The bars, then the counts by kind."""
        scored = {shape: n for shape, n in self._shapes.items() if shape[1]}
        lengths = {n_scored for _, n_scored in scored}
        bars: Counter[str] = Counter()
        if len(lengths) == 1 and max(lengths) < MAX_BARS:
            k = max(lengths)
            labels = [f"{passed}/{k}" for passed in range(k + 1)]
            for (passed, _), count in scored.items():
                bars[f"{passed}/{k}"] += count
        else:
            labels = list(BINS)
            for shape, count in scored.items():
                bars[str(curriculum_bin(*shape))] += count
        most = max(bars.values(), default=1)
        width = max(len(label) for label in labels)
        digits = len(f"{most:,}")
        drawn = [
            f"{label:>{width}}  {bars[label]:>{digits},}  {'█' * _length(bars[label], most)}"
            for label in labels
        ]
        kinds: Counter[str] = Counter()
        for shape, count in self._shapes.items():
            kinds[kind(*shape)] += count
        named = [f"{kinds[name]:,} {name}" for name in ("saturated", "mixed", "hopeless")]
        if kinds["undecided"]:
            named.append(f"{kinds['undecided']:,} undecided")
        title = f"{number(self._shapes.total(), 'task')} by attempts passed"
        return [title, *(line.rstrip() for line in drawn), ", ".join(named)]


def _length(count: int, most: int) -> int:
    """A bar's length; what is there is seen."""
    return max(1, round(count / most * BAR)) if count else 0
