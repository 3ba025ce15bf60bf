"""What the success of its prefixes says about a solution's steps. Pure functions of counts.

Steps are numbered from 1 in rows, as their readers do; ProcessBench counts from 0, so its labels
are turned here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit import stats
from labelkit.stats import ChangePoint, Counts

_ROUNDING = 1e-9


def rate(counts: Counts) -> float | None:
    """The share of scored continuations that reach the gold; None where none was scored."""
    passed, scored = counts
    return passed / scored if scored else None


def first_sharp_drop(scores: Sequence[float | None], drop: float) -> int | None:
    """The first step (from 1) whose score lies at least `drop` under the one before; the first
    step is compared with 1. Steps without a score are passed over."""
    before = 1.0
    for number, score in enumerate(scores, 1):
        if score is None:
            continue
        if before - score >= drop - _ROUNDING:
            return number
        before = score
    return None


def advantages(scores: Sequence[float | None], v0: float | None) -> list[float | None]:
    """v_i − v_{i−1} with v_0 the problem's own pass rate; None where either is unknown."""
    before = [v0, *scores[:-1]]
    return [
        None if score is None or last is None else score - last
        for score, last in zip(scores, before, strict=True)
    ]


def labels(counts: Sequence[Counts], v0: Counts, sharp_drop: float) -> dict[str, JsonValue]:
    """The columns of a row that follow from the counts; `step_scores` are the soft labels."""
    scores = [rate(each) for each in counts]
    intervals = [stats.jeffreys(*each) for each in counts]
    found = first_error(counts, v0)
    return {
        "first_sharp_drop": first_sharp_drop(scores, sharp_drop),
        "counts": [list(each) for each in counts],
        "intervals": [None if each is None else list(each) for each in intervals],
        "v0": rate(v0),
        "v0_counts": list(v0),
        "advantages": list(advantages(scores, rate(v0))),
        "hard_labels": [None if scored == 0 else passed > 0 for passed, scored in counts],
        "first_error": None
        if found is None
        else {
            "step": None if found.index is None else found.index + 1,
            "p_none": found.p_none,
            "posterior": list(found.posterior),
        },
    }


def first_error(counts: Sequence[Counts], v0: Counts) -> ChangePoint | None:
    """Where the success of the prefixes breaks; None where nothing was scored."""
    if not any(scored for _, scored in counts):
        return None
    return stats.change_point(counts, v0)


@dataclass
class ProcessBench:
    """Located first errors against given labels: accuracy on erroneous and on correct solutions,
    and their harmonic mean, the F1 of ProcessBench (arXiv 2412.06559)."""

    n_error: int = 0
    n_error_right: int = 0
    n_correct: int = 0
    n_correct_right: int = 0

    def add(self, label: int, located: int | None) -> None:
        """`label` counts from 0, −1 for no error; `located` from 1, None for no error."""
        right = located == (None if label < 0 else label + 1)
        if label < 0:
            self.n_correct += 1
            self.n_correct_right += right
        else:
            self.n_error += 1
            self.n_error_right += right

    def as_json(self) -> dict[str, JsonValue]:
        on_error = self.n_error_right / self.n_error if self.n_error else None
        on_correct = self.n_correct_right / self.n_correct if self.n_correct else None
        f1: float | None = None
        if on_error is not None and on_correct is not None:
            both = on_error + on_correct
            f1 = 2 * on_error * on_correct / both if both else 0.0
        return {
            "n_error": self.n_error,
            "accuracy_error": on_error,
            "n_correct": self.n_correct,
            "accuracy_correct": on_correct,
            "f1": f1,
        }
