"""LaTeX that only shapes the page: colours, gaps, phantoms, underlines. Gone before anything reads.

What strikes out or hides text (\\cancel) is no layout and stays.
"""

from __future__ import annotations

import re

_GAPS = re.compile(
    r"\\(?:color|[hv]space|[hv]?phantom|label|tag)\*?\s*\{[^{}]*\}"
    r"|\\(?:bf|rm|it|sf)(?![a-zA-Z])"
)
_WRAPPERS = re.compile(r"\\(?:textcolor\s*\{[^{}]*\}|underline(?![a-zA-Z])|colorbox\s*\{[^{}]*\})")


def without_layout(text: str) -> str:
    """The text without layout commands; what they wrap stays."""
    if "\\" not in text:
        return text
    return _WRAPPERS.sub("", _GAPS.sub(" ", text))
