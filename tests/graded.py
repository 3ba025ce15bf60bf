"""Tasks whose prompts tell the fake server the gold, and how often to give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.openai_server import OpenAIServer, Script
from tests.runs import write_lines, write_spec

SCRIPT = Script(
    reply="the answer is {answer} ({key})",
    gold=r"gold=(?P<gold>\d+) share=(?P<share>[\d.]+)",
    wrong="nothing",
)


def tasks(numbers: range, share: float = 0.5) -> list[dict[str, Any]]:
    return [
        {"id": f"t{i}", "prompt": f"gold={i} share={share}", "gold": f"is {i}"} for i in numbers
    ]


def spec_file(folder: Path, server: OpenAIServer, n_tasks: int = 5, **sections: Any) -> Path:
    write_lines(folder / "tasks.jsonl", tasks(range(n_tasks)))
    sampler = {"model": "direct/fake", "api_base": server.url, "seed": 1}
    return write_spec(folder, **{"tasks": {"file": "tasks.jsonl"}, "sampler": sampler, **sections})
