"""A stranger's text made safe for a terminal, and the few number formats that all reports share.

Everything that a model, a task file or a provider wrote passes through `plain` before it is
printed. Nothing here interprets markup.
"""

from __future__ import annotations

import re

# Whole sequences go (CSI, then OSC, DCS and the like up to their end); a lone ESC goes below.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
)
_BREAKS = re.compile(r"\r\n?|[\n\u2028\u2029]")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def plain(text: str, *, lines: bool = False) -> str:
    """Text without controls, bidi overrides and invisible characters; lone surrogates become �.

    With `lines`, newlines (of any kind, as `\\n`) and tabs stay; else each becomes a space.
    """
    text = _BREAKS.sub("\n", _SEQUENCES.sub("", text))
    text = _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))
    return text if lines else text.replace("\n", " ").replace("\t", " ")


def short(text: str, width: int) -> str:
    """One plain line of at most `width` characters."""
    line = plain(text[: 4 * width])
    return line if len(line) <= width and len(text) <= 4 * width else line[: width - 1] + "…"


def percent(rate: float | None) -> str:
    """`62.5%`; a dash where there is no rate."""
    return "–" if rate is None else f"{rate:.1%}"


def span(interval: object) -> str:
    """`[24%, 91%]` for an interval of rates; empty where there is none."""
    if not isinstance(interval, list | tuple):
        return ""
    low, high = interval
    return f"[{low:.0%}, {high:.0%}]"


def money(usd: float) -> str:
    """Dollars with cents, or with four significant digits below one cent."""
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4g}"


def seconds(duration_s: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(duration_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def number(count: int, noun: str) -> str:
    """`1 task`, `1,319 tasks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
