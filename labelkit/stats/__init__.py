"""The statistics of rates measured on few samples: pure functions of counts, each with its source.

Standard library only, no state beyond memoised values, no files, no printing. Scipy stands beside
it in the tests as an independent oracle; at run time its import would cost more than all of this.
Counts come as (n_passed, n_scored), but for pass@k, which keeps the order of its paper. Unscored
draws never enter, and `None` stands wherever the counts carry no answer (nothing scored, too few
samples), never 0 or NaN.
"""

from labelkit.stats.changepoint import ChangePoint, Counts, Probe, change_point, next_probe
from labelkit.stats.compare import Paired, mcnemar, newcombe, paired
from labelkit.stats.rates import (
    BINS,
    ClusteredRate,
    Interval,
    band_posterior,
    clopper_pearson,
    curriculum_bin,
    jeffreys,
    learnability,
    p_in_zone,
    pass_at_k,
    pass_hat_k,
    wilson,
)
from labelkit.stats.stopping import Band, Decision, band_decided, expected_draws, is_mixed

__all__ = [
    "BINS",
    "Band",
    "ChangePoint",
    "ClusteredRate",
    "Counts",
    "Decision",
    "Interval",
    "Paired",
    "Probe",
    "band_decided",
    "band_posterior",
    "change_point",
    "clopper_pearson",
    "curriculum_bin",
    "expected_draws",
    "is_mixed",
    "jeffreys",
    "learnability",
    "mcnemar",
    "newcombe",
    "next_probe",
    "p_in_zone",
    "paired",
    "pass_at_k",
    "pass_hat_k",
    "wilson",
]
