"""What the scores of a best-of-n run say about whoever gave them; sums only, task by task."""

from __future__ import annotations

import math
from collections import Counter

from pydantic import JsonValue

from labelkit.records import Outcome

SATURATED = 0.5
"""Above this share of prompts whose candidates all got the top score, the scores choose nothing."""


class ScoreSummary:
    """`top`: the highest score there is. `whole`: scores stand on a judge's scale, not in [0, 1].

    Constraint breakers have no score: their prompt is not saturated, and they enter nothing else.
    """

    def __init__(self, *, top: float, whole: bool) -> None:
        self._top = top
        self._whole = whole
        self._counts: Counter[str] = Counter()
        self._histogram: Counter[float] = Counter()
        self._gain = 0.0
        self._moments = _Moments()

    def add(self, outcome: Outcome) -> None:
        told = outcome.detail
        matches = told["matches"]
        assert isinstance(matches, list)
        self._counts["over_bar"] += outcome.status == "kept"
        self._counts["no_pair"] += bool(told["no_pair"])
        for match in matches:
            assert isinstance(match, dict)
            self._counts["matches"] += 1
            self._counts["ties"] += match["winner"] is None
        scores, lengths = _numbers(told["scores"]), _numbers(told["lengths"])
        if not scores:
            return
        self._counts["scored"] += 1
        every = not told["n_not_scored"]
        self._counts["saturated"] += every and all(score == self._top for score in scores)
        self._gain += max(scores) - math.fsum(scores) / len(scores)
        for score, length in zip(scores, lengths, strict=True):
            self._histogram[round(score, 2) if self._whole else math.floor(score * 10) / 10] += 1
            self._moments.add(length, score)

    def as_json(self) -> dict[str, JsonValue]:
        """Shares and means over the prompts with a scored candidate; None where there is none."""
        n = self._counts["scored"]
        played = {name: self._counts[name] for name in ("matches", "ties")}
        return {
            "n_prompts_scored": n,
            "n_over_bar": self._counts["over_bar"],
            "share_over_bar": self._counts["over_bar"] / n if n else None,
            "score_histogram": {f"{s:g}": self._histogram[s] for s in sorted(self._histogram)},
            "saturation": self._counts["saturated"] / n if n else None,
            "score_length_correlation": self._moments.correlation(),
            "gain_of_best_over_mean": self._gain / n if n else None,
            "n_no_pair": self._counts["no_pair"],
            **(played if self._counts["matches"] else {}),
        }


class _Moments:
    """Pearson's correlation of pairs that come one by one (Welford's updates, which stay exact
    where sums of squares would cancel)."""

    def __init__(self) -> None:
        self._n = 0
        self._mean_x = self._mean_y = 0.0
        self._xx = self._yy = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self._n += 1
        from_x, from_y = x - self._mean_x, y - self._mean_y
        self._mean_x += from_x / self._n
        self._mean_y += from_y / self._n
        self._xx += from_x * (x - self._mean_x)
        self._yy += from_y * (y - self._mean_y)
        self._xy += from_x * (y - self._mean_y)

    def correlation(self) -> float | None:
        """None where all lengths or all scores are the same."""
        spread = math.sqrt(self._xx * self._yy)
        return max(-1.0, min(1.0, self._xy / spread)) if spread > 0 else None


def _numbers(values: JsonValue) -> list[float]:
    assert isinstance(values, list)
    return [float(value) for value in values if isinstance(value, int | float)]
