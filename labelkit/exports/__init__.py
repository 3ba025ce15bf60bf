"""Exports: rows of a finished run as other tools read them. One file a format; this page is the
registry and the contract between formats, reader and writer.

A format is plain code over the rows of one task. It reads no file, holds nothing that grows with
the run, and accounts for every unit it is given: either examples come of it or a reason why not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import JsonValue

from labelkit.errors import UsageError
from labelkit.spec import nearest

REGISTRY: dict[str, str] = {
    "sft-messages": "labelkit.exports.sft_messages:SftMessages",
    "dpo": "labelkit.exports.dpo:Dpo",
    "verl": "labelkit.exports.verl:Verl",
}
"""Format → `module:Class`."""

RunRow = dict[str, Any]
"""A line of rows.jsonl, which labelkit wrote itself."""


@dataclass(frozen=True)
class Options:
    """What a user may choose; a format's TAKES names the fields that mean something to it.

    `reasoning`: its own `reasoning_content`, nowhere, or in <think> tags before the text.
    `prompt`: the messages as sent, or the task's own. `data_source` None: from the metadata.
    `reasoning_key` is found out, not chosen: False where no example has reasoning to keep.
    """

    reasoning: Literal["keep", "drop", "think-tags"] = "keep"
    system: Literal["keep", "drop"] = "keep"
    prompt: Literal["sent", "raw"] = "sent"
    max_pairs: int = 1
    data_source: str | None = None
    reasoning_key: bool = True


class Example(NamedTuple):
    """One row of the exported file, and where it comes from: task id, sample index, score."""

    fields: dict[str, JsonValue]
    origin: dict[str, JsonValue]


@dataclass(frozen=True)
class Unit:
    """One unit of the run: its examples, or in one word why it gives none."""

    examples: tuple[Example, ...] = ()
    left_out: str | None = None


class Format(Protocol):
    """UNIT is what is counted, COMMANDS the recipes whose rows it reads, TAKES its options."""

    UNIT: ClassVar[Literal["row", "task"]]
    COMMANDS: ClassVar[tuple[str, ...]]
    TAKES: ClassVar[tuple[str, ...]]

    def __init__(self, options: Options) -> None: ...

    def units(self, task_rows: Sequence[RunRow]) -> Iterator[Unit]:
        """The units of one task's rows. Raises UsageError where an option is missing or wrong."""
        ...


def load_format(name: str) -> type[Format]:
    """The class of a registered format. Raises UsageError with the nearest right name."""
    if name not in REGISTRY:
        guess = nearest(name, list(REGISTRY))
        hint = f"did you mean {guess}?" if guess else f"known: {', '.join(REGISTRY)}"
        raise UsageError(f"--to {name}: is no format", hint=hint)
    module, _, attribute = REGISTRY[name].partition(":")
    found: type[Format] = getattr(import_module(module), attribute)
    return found


def choose(name: str, **given: Any) -> Options:
    """The options that a user gave (None: not given) for a format. Raises UsageError for those
    that would change nothing."""
    takes = load_format(name).TAKES
    chosen = {option: value for option, value in given.items() if value is not None}
    for option in chosen:
        if option not in takes:
            raise UsageError(
                f"{_flag(option)}: is not for {name}",
                hint=f"{name} takes {', '.join(map(_flag, takes))}",
            )
    return Options(**chosen)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
