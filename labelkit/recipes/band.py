"""The band of pass rates that rl-select keeps, in the notation of intervals, and its presets."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import core_schema

from labelkit import stats
from labelkit.stats.beta import log_beta

_INTERVAL = re.compile(r"\s*([\[(])\s*([0-9.]+)\s*,\s*([0-9.]+)\s*([\])])\s*")


@dataclass(frozen=True)
class Preset:
    """A published selection rule: its band, the K it was measured with, and where it stands."""

    band: str
    k: int
    source: str


PRESETS = {
    "dapo": Preset("(0, 1)", 16, "DAPO, arXiv 2503.14476: drop groups with accuracy 0 or 1"),
    "skywork-or1": Preset("(0, 1)", 16, "Skywork-OR1, arXiv 2505.22312: drop 0/16 and 16/16"),
    "open-r1": Preset("[0.1, 0.9]", 8, "Open-R1: keep pass rates from 0.1 to 0.9"),
    "polaris": Preset("[0, 1)", 8, "POLARIS: 8 rollouts, drop 8/8"),
}


class BandField(stats.Band):
    """`(0, 1)`, `[0.2, 0.8]`, `(0, 0.5]`: round ends are out, square ones in. A YAML list of two
    numbers is read with both ends in. Raises ValueError for what is no band."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def parse(cls, value: object) -> BandField:
        if isinstance(value, cls):
            return value
        if isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value):
            value = f"[{value[0]}, {value[1]}]"
        found = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError("is no band; write it as (0, 1) or [0.2, 0.8]")
        left, low, high, right = found.groups()
        try:
            lo, hi = float(low), float(high)
        except ValueError:
            raise ValueError("has an end that is no number") from None
        if not 0 <= lo <= hi <= 1 or (lo == hi and (left, right) != ("[", "]")):
            raise ValueError("holds no pass rate: write the lower end first, both within 0 and 1")
        return cls(lo, hi, left == "[", right == "]")

    def __str__(self) -> str:
        left, right = "[" if self.lo_inclusive else "(", "]" if self.hi_inclusive else ")"
        return f"{left}{self.lo:g}, {self.hi:g}{right}"

    @property
    def is_zone(self) -> bool:
        """The open unit interval: mixed tasks, the learning zone."""
        return str(self) == "(0, 1)"

    def probability(self, n_passed: int, n_scored: int, k: int) -> float:
        """P(p in the band) under the Jeffreys posterior; for (0, 1), which every p is in, the
        probability that k fresh draws are mixed."""
        if self.is_zone:
            return stats.p_in_zone(n_passed, n_scored, k)
        return stats.band_posterior(n_passed, n_scored, self.lo, self.hi)

    def misplaced(self, k: int) -> float | None:
        """Of the tasks that k draws put into the band, the share whose true rate lies outside.

        Expected over rates from the Jeffreys prior; None where no count of k lies in the band.
        """
        inside = [c for c in range(k + 1) if self.contains(c, k)]
        if not inside:
            return None
        weights = [math.comb(k, c) * math.exp(log_beta(c + 0.5, k - c + 0.5)) for c in inside]
        held = [stats.band_posterior(c, k, self.lo, self.hi) for c in inside]
        right = sum(weight * each for weight, each in zip(weights, held, strict=True))
        return 1 - right / sum(weights)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
