"""Where a solution goes wrong, told from how often each of its prefixes is completed correctly.

The model: every prefix before the first error is completed correctly with one rate, every later one
with a lower rate that need not be zero, since completers repair errors. So a hit on a prefix is
evidence that it is good, never proof: searches that trust a single hit break as soon as completers
repair, and more rollouts make them worse. Nothing here knows how counts come about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from labelkit.stats.beta import log_beta

Counts = tuple[int, int]
"""(n_passed, n_scored) of one prefix."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ChangePoint:
    """The posterior of the first bad step.

    `index` (from 0) is the likeliest first bad step, None where 'no bad step' is likelier than a
    bad one anywhere. `posterior[i]` is the probability that step i is the first bad one, `p_none`
    that none is; together they sum to 1.
    """

    index: int | None
    posterior: tuple[float, ...]
    p_none: float

    @property
    def likeliest(self) -> int:
        """The likeliest first bad step if there is one (from 0), the earliest of equals."""
        return max(range(len(self.posterior)), key=self.posterior.__getitem__)


@dataclass(frozen=True)
class Probe:
    """What to sample next: `n` more rollouts from the prefix that ends with step `index`."""

    index: int
    n: int


def change_point(
    counts: Sequence[Counts], v0: Counts | None = None, *, prior_none: float = 0.5
) -> ChangePoint:
    """Two-rate binomial change point, falling, over the prefixes of one solution.

    `counts[i]` belongs to the prefix that ends with step i; prefixes without rollouts are (0, 0).
    `v0` are the counts of the bare problem; without them a solution that is bad from its first
    step on can hardly be told from a hard problem (the evidence for step 0 is at most twofold).

    Each position is judged by its likelihood integrated over both rates, uniform on rate before >
    rate after (Smith 1975, Biometrika 62(2), the binomial case, with the order as a constraint);
    'no change' by its own, so that their ratio is the criterion: a Bayes factor, which needs no
    threshold for the number of positions tried. `prior_none` is the prior of 'no change'; the rest
    is shared equally by the positions.
    """
    if not counts:
        raise ValueError("a solution without steps has no first bad step")
    if not 0 < prior_none < 1:
        raise ValueError(f"prior_none is {prior_none}; it must lie between 0 and 1")
    start = v0 or (0, 0)
    passed = list(accumulate((c for c, _ in counts), initial=start[0]))
    failed = list(accumulate((n - c for c, n in counts), initial=start[1] - start[0]))
    share = math.log1p(-prior_none) - math.log(len(counts))
    logs = [
        share + _log_falling(passed[i], failed[i], passed[-1] - passed[i], failed[-1] - failed[i])
        for i in range(len(counts))
    ]
    logs.append(math.log(prior_none) + log_beta(passed[-1] + 1, failed[-1] + 1))
    peak = max(logs)
    weights = [math.exp(value - peak) for value in logs]
    total = math.fsum(weights)
    posterior = tuple(weight / total for weight in weights[:-1])
    found = ChangePoint(None, posterior, weights[-1] / total)
    if found.p_none >= 0.5 - _ROUNDING:
        return found
    return ChangePoint(found.likeliest, posterior, found.p_none)


def next_probe(
    counts: Sequence[Counts],
    k: int,
    *,
    max_rollouts: int,
    drawn: Sequence[int] | None = None,
    v0: Counts | None = None,
    prior_none: float = 0.5,
    confident: float = 0.95,
) -> Probe | None:
    """The adaptive search for the first bad step: what to sample next, or None to stop.

    A pure function of what is known so far. First k rollouts at the first, middle and last prefix,
    which tell both rates; then k/2 at a time at the median of the posterior of the first bad step,
    given that there is one (probabilistic bisection: Horstein 1963; Waeber, Frazier and Henderson
    2013, SIAM J. Control Optim. 51(3)). Stops once one place, or 'none', is `confident`-ly known or
    `max_rollouts` are drawn. A prefix near the break may so get more than k rollouts.

    `drawn[i]` counts the rollouts of prefix i, unscored ones included (default: those scored);
    `v0` costs nothing here. Each call asks for at least one rollout, so the search ends.
    """
    if k < 1:
        raise ValueError(f"k is {k}; it must be at least 1")
    spent = list(drawn) if drawn is not None else [n for _, n in counts]
    left = max_rollouts - sum(spent)
    if left <= 0:
        return None
    last = len(counts) - 1
    for index in (0, last, last // 2):
        if spent[index] < k:
            return Probe(index, min(k - spent[index], left))
    found = change_point(counts, v0, prior_none=prior_none)
    if max(found.p_none, *found.posterior) >= confident:
        return None
    half = (1 - found.p_none) / 2
    reached = list(accumulate(found.posterior))
    median = min(range(len(counts)), key=lambda index: abs(reached[index] - half))
    return Probe(median, min(max(1, k // 2), left))


@lru_cache(maxsize=1 << 16)
def _log_falling(c1: int, f1: int, c2: int, f2: int) -> float:
    """log of 2 ∫∫_{p>q} pᶜ¹(1−p)ᶠ¹ qᶜ²(1−q)ᶠ² dq dp.

    The order costs a factor P(p > q) for independent p ~ Beta(c1+1, f1+1), q ~ Beta(c2+1, f2+1):
    Σ_{i=0}^{c1} B(c2+1+i, f1+f2+2) / ((f1+1+i) B(1+i, f1+1) B(c2+1, f2+1)), here term by term from
    the ratio of neighbours, in logs (all terms are positive).
    """
    a, b, both = c2 + 1, f1 + 1, f1 + f2 + 2
    log_term = log_beta(a, both) - log_beta(a, f2 + 1)
    log_terms = [log_term]
    for i in range(c1):
        log_term += math.log((a + i) * (b + i) / ((a + i + both) * (1 + i)))
        log_terms.append(log_term)
    peak = max(log_terms)
    log_order = peak + math.log(math.fsum(math.exp(term - peak) for term in log_terms))
    return math.log(2) + log_beta(c1 + 1, f1 + 1) + log_beta(c2 + 1, f2 + 1) + log_order
