"""A fake provider that solves p1 step by step and continues prefixes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.openai_server import Ask, Script
from tests.runs import write_spec

RIGHT = ["12 × 6 = 72", "72 − 15 = 57", "57 × 5 = 285"]
WRONG = ["12 × 6 = 72", "72 − 15 = 67", "57 × 5 = 285"]

Continue = Callable[[str], str]


def prefix_in(ask: Ask) -> str | None:
    """The prefix that a call shows, in whichever way; None where the bare problem is asked."""
    if "messages" not in ask.body:
        return str(ask.body["prompt"]).partition("Problem\n\n")[2] or None
    last = ask.body["messages"][-1]
    if last["role"] == "assistant":
        return str(last["content"])
    _, quoted, rest = str(last["content"]).partition("The solution so far:\n\n")
    return rest.partition("\n\nGo on from")[0] if quoted else None


def faithful(prefix: str) -> str:
    """Goes on from the last number: what a completer does that takes steps as written."""
    last = int(re.findall(r"\d+", prefix)[-1])
    todo = {72: [-15, 5], 57: [5], 67: [5], 82: [-15, 5], 285: []}.get(last, [])
    for number in todo:
        last = last + number if number < 0 else last * number
    return str(last)


def repairing(prefix: str) -> str:
    """Mends whatever it is given."""
    return "285"


def script(
    continued: Continue, solution: list[str] | None = None, *, schema: bool = True, **settings: Any
) -> Script:
    """`solution`: what the solver says to the bare problem."""
    steps = RIGHT if solution is None else solution

    def reply(ask: Ask) -> str:
        prefix = prefix_in(ask)
        answer = steps[-1].split()[-1] if prefix is None else continued(prefix)
        if schema:
            said = {"steps": steps} if prefix is None else {"reasoning": "so"}
            return json.dumps({**said, "final_answer": int(answer)})
        text = "\n\n".join(steps) if prefix is None else ""
        return f"{text}\n\nThe answer is {answer}."

    return Script(reply=reply, **settings)


def spec_file(folder: Path, url: str, **sections: Any) -> Path:
    task = {"id": "p1", "prompt": "Problem", "gold": 285, "metadata": {"steps": WRONG}}
    values: dict[str, Any] = {
        "tasks": [task],
        "sampler": {
            "model": "direct/solver",
            "api_base": url,
            "seed": 1,
            "response": {"steps": "list[str]", "final_answer": "int"},
        },
        "scorer": {"numeric": {"answer": {"field": "final_answer"}}},
        "k": 3,
        "step_rewards": {"solutions": "metadata.steps"},
        **sections,
    }
    return write_spec(folder, **values)


def free_text(url: str, **sampler: Any) -> dict[str, Any]:
    """Sections for a solver that answers in plain text."""
    return {
        "sampler": {"model": "direct/solver", "api_base": url, "seed": 1, **sampler},
        "scorer": "numeric",
        "step_rewards": {"prefix_mode": "prefill"},
    }
