"""JSON in and out without loss: the one place that turns bytes into values and back.

orjson is the fast path. It cannot carry integers beyond 64 bits (it refuses to write them and
reads them as floats) and reads `1e999` and duplicate keys without a word, so integers that long go
through the standard library, and `strict_loads` is for text that a stranger wrote.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

import orjson
from pydantic import JsonValue

# An integer of 19 digits may exceed 64 bits; such a run inside text costs the slow path only.
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_DIGITS = b"0" * 19
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How a text begins that an editor or a spreadsheet saved as UTF-16."""

MAX_DEPTH = 100
"""Levels of nesting that every later step (validation, ledger, rows) is sure to carry."""


def dumps(value: JsonValue) -> bytes:
    """Compact UTF-8 JSON in the given key order.

    Raises ValueError on lone surrogates (`clean_text` first). Values must be free of NaN and
    infinities, which orjson would write as null: records refuse them at the edge.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8")


def pretty(value: JsonValue) -> bytes:
    """Indented JSON for files that people open, with a final newline."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n"


def canonical(value: JsonValue) -> bytes:
    """Canonical JSON: keys sorted, compact, UTF-8; the input of every fingerprint."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return text.encode("utf-8")


def loads(raw: bytes) -> JsonValue:
    """Read JSON that labelkit wrote itself; integers of any size stay exact."""
    if has_long_integers(raw):
        value: JsonValue = json.loads(raw)
        return value
    fast: JsonValue = orjson.loads(raw)
    return fast


def has_long_integers(raw: bytes) -> bool:
    """Whether JSON may hold integers beyond 64 bits, which orjson reads as floats."""
    return _LONG_DIGITS in raw.translate(_AS_ZERO)


def strict_loads(text: str | bytes) -> JsonValue:
    """Read JSON from a stranger.

    Raises ValueError, in words for the user, on duplicate keys, NaN and infinities (`1e999` too),
    nesting beyond the parser's depth, and all that is not JSON.
    """
    try:
        value: JsonValue = _STRICT.decode(text.decode("utf-8") if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def clean_text(text: str) -> str:
    """Text that can be written as UTF-8: paired surrogates joined, lone ones made U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def unwritable(value: JsonValue) -> str | None:
    """Why a stranger's value cannot go into a record, or None: lone surrogates, over 100 levels.

    Linear and without recursion, so that it holds on any value that was parsed.
    """
    pending: list[tuple[JsonValue, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} levels deep"
        if isinstance(item, str):
            if not item.isascii() and _LONE_SURROGATE.search(item):
                return "has half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        elif isinstance(item, dict):
            pending.extend((key, depth) for key in item)
            pending.extend((member, depth + 1) for member in item.values())
        elif isinstance(item, list | tuple):
            pending.extend((member, depth + 1) for member in item)
    return None


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {key!r}")
            seen.add(key)
    return members


def _finite(literal: str) -> float:
    number = float(literal)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{literal} is too large for a number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_float=_finite, parse_constant=_no_constant
)
