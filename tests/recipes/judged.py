"""A fake provider that writes candidates and judges them, and specs for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.openai_server import Ask, Script
from tests.runs import write_spec

Score = Callable[[str], int]


def is_judge(ask: Ask) -> bool:
    return str(ask.body["messages"][0]["content"]).startswith(("You judge", "You compare"))


def between(text: str, label: str) -> str:
    """What stands inside a fence of the judge's request."""
    inside = text.partition(f"=== BEGIN {label} ")[2].partition("\n")[2]
    return inside.partition(f"\n=== END {label} ")[0]


def script(candidate: Callable[[Ask], str], score: Score, **settings: Any) -> Script:
    """Candidates by `candidate`; verdicts by `score` of the text judged, and of the two texts
    compared the better scored one, the first of equals."""

    def reply(ask: Ask) -> str:
        if not is_judge(ask):
            return candidate(ask)
        if "=== BEGIN REPLY A" in ask.prompt:
            a, b = (score(between(ask.prompt, f"REPLY {name}")) for name in "AB")
            return json.dumps({"reason": "by the rubric", "better": "A" if a >= b else "B"})
        verdict = score(between(ask.prompt, "REPLY"))
        return json.dumps({"reason": f"worth {verdict}", "score": verdict})

    return Script(reply=reply, **settings)


def spec_file(folder: Path, url: str, n_tasks: int = 2, **sections: Any) -> Path:
    judge = {
        "model": "direct/judge",
        "api_base": url,
        "scale": {"min": 1, "max": 5},
        "rubric": "5 is excellent, 1 is unusable.",
    }
    values: dict[str, Any] = {
        "tasks": [{"id": f"t{i}", "prompt": f"write {i}"} for i in range(1, n_tasks + 1)],
        "sampler": {"model": "direct/writer", "api_base": url, "seed": 1},
        "scorer": None,
        "k": 3,
        "best_of_n": {"bar": 4, "judge": judge},
        **sections,
    }
    values["best_of_n"] = {"judge": judge, **values["best_of_n"]}
    return write_spec(folder, **values)
