"""The labelled cases of all kinds, under the bounds that the project promises.

LABELKIT_CASES names another file of such rows. One test: the rows are run once.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from benchmarks.verifiers import decide, read_cases

CASES = Path(__file__).parents[1] / "data" / "verifier_cases.jsonl.gz"
MOST_WRONG_OF_A_KIND = 0.04
MOST_WRONG = 0.02
MOST_ABSTAINED = 0.03
TRACE = Path("/tmp/verifier_pwned")
"""What the hostile rows would leave if their text were ever evaluated."""


def test_cases_are_decided_within_the_promised_bounds() -> None:
    TRACE.unlink(missing_ok=True)
    rows = read_cases(Path(os.environ.get("LABELKIT_CASES", CASES)))
    found = asyncio.run(decide(rows)).to_json()
    said = {
        outcome: [
            f"{one['id']}: {one['said']}" for one in found["wrong"] if one["outcome"] == outcome
        ]
        for outcome in ("false_positive", "false_negative", "abstained", "not_run")
    }
    assert found["n"] > 0
    assert said["false_positive"] == []
    assert found["false_negatives"] <= MOST_WRONG * found["n"], said["false_negative"]
    for kind, counts in found["by_kind"].items():
        within = counts["false_negatives"] <= MOST_WRONG_OF_A_KIND * counts["n"]
        assert within, (kind, said["false_negative"])
    assert found["abstained"] <= MOST_ABSTAINED * found["n"], said["abstained"]
    assert [one for one in said["not_run"] if "sandbox" not in one] == []
    assert not TRACE.exists()
