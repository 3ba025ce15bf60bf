"""From a source row to what a task is made of: native rows strictly, foreign ones by `fields`.

A misspelt key never passes: a `gold` that goes unread would make every answer right. Nothing is
coerced but what a foreign file cannot say (numeric ids become text).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from labelkit.codec import unwritable
from labelkit.patterns import PatternLateError, TimedPattern, patience
from labelkit.records import Message
from labelkit.rowfiles import MISSING, SourceRow, lookup
from labelkit.spec import FieldMap, GoldFrom, Problem, SectionError, nearest

NATIVE = ("id", "prompt", "gold", "metadata")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_FOREIGN_FIX = "map the columns of a foreign file with tasks: {fields: {prompt: …, gold: …}}"


@dataclass(frozen=True)
class Draft:
    """A row read as a task whose id may still have to be made.

    `bad_gold` says why a gold that should be there could not be taken.
    """

    source: SourceRow
    id: str | None
    prompt: str | tuple[Message, ...]
    gold: JsonValue
    metadata: dict[str, JsonValue]
    bad_gold: str | None = None


class RowReader:
    """Reads rows by a field map, or strictly as native ones where there is none."""

    def __init__(self, fields: FieldMap | None) -> None:
        """Raises SectionError on a field map that cannot work."""
        self._fields = fields
        self._gold: GoldFrom | None = None
        self._regex: TimedPattern | None = None
        self._late: Problem | None = None
        if fields is None:
            return
        gold = fields.gold
        self._gold = gold if isinstance(gold, GoldFrom) else None
        if self._gold is None:
            return
        if (self._gold.after is None) == (self._gold.regex is None):
            fix = 'gold: {column: answer, after: "####"}'
            raise SectionError([Problem(("gold",), "needs `after` or `regex`, one of them", fix)])
        if self._gold.after == "":
            raise SectionError([Problem(("gold", "after"), "is empty", 'e.g. after: "####"')])
        if self._gold.regex is not None:
            try:
                self._regex = TimedPattern(self._gold.regex)
            except re.error as error:
                problem = f"is not a regular expression: {error}"
                raise SectionError([Problem(("gold", "regex"), problem)]) from None

    @property
    def columns(self) -> dict[str, str]:
        """Every column that the field map names, by the field that names it."""
        if self._fields is None:
            return {}
        named = {"prompt": self._fields.prompt}
        if self._fields.id is not None:
            named["id"] = self._fields.id
        if self._gold_column is not None:
            named["gold"] = self._gold_column
        if isinstance(self._fields.metadata, dict):
            for name, column in self._fields.metadata.items():
                named[f"metadata.{name}"] = column
        return named

    def header(self, columns: Sequence[str]) -> list[Problem]:
        """What is wrong with the columns of a format that names them once for all rows."""
        if not columns:
            return [Problem((), "is empty", "its first line names the columns")]
        if self._fields is None:
            problems = _unknown_keys(dict.fromkeys(columns))
            if "prompt" not in columns:
                problems.append(missing_column("prompt", "prompt", columns, _FOREIGN_FIX))
            return problems
        return [
            missing_column(field, column, columns)
            for field, column in self.columns.items()
            if column not in columns and column.partition(".")[0] not in columns
        ]

    def read(self, row: SourceRow) -> Draft | list[Problem]:
        if self._late is not None:
            return [self._late]
        try:
            draft = self._native(row) if self._fields is None else self._foreign(row, self._fields)
        except PatternLateError as late:
            # No clock may decide what a gold is: this is a fault, whatever happens to bad golds.
            fix = "write the regex without repetition inside repetition"
            self._late = Problem(("gold",), str(late), fix)
            return [self._late]
        if isinstance(draft, list):
            return draft
        problems = []
        for field in NATIVE:
            problem = unwritable(getattr(draft, field))
            if problem:
                problems.append(Problem((field,), problem, "remove it or mend the file"))
        return problems or draft

    @property
    def _gold_column(self) -> str | None:
        fields = self._fields
        if fields is None or fields.gold is None:
            return None
        return fields.gold if isinstance(fields.gold, str) else fields.gold.column or "gold"

    def _native(self, row: SourceRow) -> Draft | list[Problem]:
        values = row.values
        problems = _unknown_keys(values)
        identity = values.get("id")
        if "id" in values and not isinstance(identity, str):
            problem = f"is not text: {_short(identity)}"
            problems.append(Problem(("id",), problem, f'write it as "{_short(identity)}"'))
        elif isinstance(identity, str) and not identity.strip():
            problems.append(Problem(("id",), "is empty", "give it one, or leave `id` out"))
        metadata = values.get("metadata", {})
        if not isinstance(metadata, dict):
            problem = f"is not an object: {_short(metadata)}"
            problems.append(Problem(("metadata",), problem, 'write "metadata": {…}'))
            metadata = {}
        prompt = self._prompt(row, "prompt", problems)
        if problems:
            return problems
        return Draft(row, _text(identity), prompt, values.get("gold"), metadata)

    def _foreign(self, row: SourceRow, fields: FieldMap) -> Draft | list[Problem]:
        problems: list[Problem] = []
        prompt = self._prompt(row, fields.prompt, problems)
        identity: JsonValue = None
        if fields.id is not None:
            found = lookup(row.values, fields.id)
            if found is MISSING or found is None or found == "":
                problems.append(missing_column("id", fields.id, list(row.values)))
            elif isinstance(found, bool) or not isinstance(found, str | int):
                problem = f"is neither text nor a whole number: {_short(found)}"
                problems.append(Problem(("id",), problem, "name another column, or none"))
            else:
                identity = str(found)
        metadata: dict[str, JsonValue] = {}
        if isinstance(fields.metadata, dict):
            for name, column in fields.metadata.items():
                found = lookup(row.values, column)
                metadata[name] = None if found is MISSING else found
        else:
            used = {column.partition(".")[0] for column in self.columns.values()}
            used |= set(self.columns.values())
            metadata = {name: value for name, value in row.values.items() if name not in used}
        if problems:
            return problems
        gold, bad_gold = self._take_gold(row)
        return Draft(row, _text(identity), prompt, gold, metadata, bad_gold)

    def _take_gold(self, row: SourceRow) -> tuple[JsonValue, str | None]:
        column = self._gold_column
        if column is None:
            return None, None
        found = lookup(row.values, column)
        if found is MISSING:
            return None, f"there is no `{column}`; {_known(column, list(row.values))}"
        if found is None or found == "":
            return None, f"`{column}` is empty"
        if self._gold is None:
            return found, None
        if not isinstance(found, str):
            return None, f"`{column}` is not text: {_short(found)}"
        if self._regex is not None:
            with patience():
                match = self._regex.search(found)
            taken = "" if match is None else match[1 if self._regex.groups else 0] or ""
            wanted = f"the regex {self._regex.pattern!r} finds nothing"
        else:
            _, separator, after = found.rpartition(str(self._gold.after))
            taken = after if separator else ""
            wanted = f"there is nothing after {self._gold.after!r}"
        taken = taken.strip()
        return (taken, None) if taken else (None, f"{wanted} in `{column}`: {_short(found)}")

    def _prompt(
        self, row: SourceRow, column: str, problems: list[Problem]
    ) -> str | tuple[Message, ...]:
        prompt = lookup(row.values, column) if self._fields else row.values.get("prompt", MISSING)
        if prompt is MISSING:
            fix = None if self._fields else f'add "prompt": "…", or {_FOREIGN_FIX}'
            problems.append(missing_column("prompt", column, list(row.values), fix))
        elif isinstance(prompt, str):
            if prompt and not prompt.isspace():
                return prompt
            problems.append(Problem(("prompt",), "is empty", "write the text of the task"))
        elif isinstance(prompt, list):
            return _messages(prompt, problems)
        else:
            fix = 'write text, or chat messages: [{"role": "user", "content": "…"}]'
            problem = f"is neither text nor chat messages: {_short(prompt)}"
            problems.append(Problem(("prompt",), problem, fix))
        return ""


def missing_column(
    field: str, column: str, known: Sequence[str], fix: str | None = None
) -> Problem:
    """A column that is not in a row (or in any), with the nearest one that is."""
    return Problem((field,), f"there is no `{column}`", fix or _known(column, known))


def _known(column: str, known: Sequence[str]) -> str:
    guess = nearest(column.partition(".")[0], known)
    if guess and guess != column:
        return f"did you mean `{guess}`?"
    return f"the row has: {', '.join(known)[:200]}"


def _unknown_keys(values: dict[str, JsonValue]) -> list[Problem]:
    """Keys that no native row has. labelkit's own rows, known by their `provenance`, carry more;
    in those only a key that looks like a missing one of a task is refused."""
    own = isinstance(values.get("provenance"), dict)
    absent = [name for name in NATIVE if name not in values]
    problems = []
    for key in values:
        if key in NATIVE:
            continue
        guess = nearest(key.lower(), absent)
        if own and not difflib.get_close_matches(key.lower(), absent, n=1, cutoff=0.75):
            continue
        fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join(NATIVE)}; {_FOREIGN_FIX}"
        problems.append(Problem((key,), "unknown key", fix))
    return problems


def _messages(prompt: list[JsonValue], problems: list[Problem]) -> tuple[Message, ...]:
    if not prompt:
        problems.append(Problem(("prompt",), "is empty", "write at least one message"))
    messages = []
    for i, message in enumerate(prompt):
        if not isinstance(message, dict):
            fix = 'write {"role": "user", "content": "…"}'
            problems.append(Problem(("prompt", i), f"is no message: {_short(message)}", fix))
            continue
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            problem = f"is {_short(role)}"
            problems.append(Problem(("prompt", i, "role"), problem, f"one of {', '.join(_ROLES)}"))
        if not isinstance(content, str | list) and not message.get("tool_calls"):
            fix = "write text, or a list of parts"
            problems.append(Problem(("prompt", i, "content"), f"is {_short(content)}", fix))
        messages.append(message)
    return tuple(messages)


def _text(identity: JsonValue) -> str | None:
    return identity if isinstance(identity, str) else None


def _short(value: JsonValue) -> str:
    text = repr(value) if value is not None else "null"
    return text if len(text) <= 60 else text[:57] + "…"
