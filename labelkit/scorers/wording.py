"""Words, sentences, paragraphs and occurrences: what constraints count, defined once.

A word is what stands between spaces and dashes and holds a letter or a digit, so that `it's`,
`well-known` and `3.5` are one each; in scripts without spaces each character is one. A sentence
ends with its mark, not with an abbreviation's, or with its paragraph.
"""

from __future__ import annotations

import re
import unicodedata

from labelkit.scorers.folding import normalized

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPLIT = re.compile(rf"[\s\u2013\u2014\u2015/|]+|--+|(?<=[{_UNSPACED}])|(?=[{_UNSPACED}])")
_NO_EDGES = re.compile(rf"[{_UNSPACED}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def words(text: str) -> list[str]:
    """The words of a text, without punctuation around them."""
    tokens = (_stripped(token) for token in _SPLIT.split(text))
    return [token for token in tokens if token]


def plain(text: str) -> str:
    """Lower case with marks and typographic variants taken off: é is e, ’ is '."""
    decomposed = normalized("NFKD", text.translate(QUOTES).casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


QUOTES = str.maketrans("‘’‛‚ʼ′“”„‟«»", "''''''\"\"\"\"\"\"")


def occurrences(phrase: str, text: str) -> int:
    """How often a phrase stands in a text as whole words; case and spacing do not matter.

    In scripts written without spaces there are no word edges to respect.
    """
    parts = [re.escape(part) for part in phrase.translate(QUOTES).split()]
    if not parts:
        return 0
    pattern = r"\s+".join(parts)
    if _is_word(phrase[0]):
        pattern = r"(?<![^\W_])" + pattern
    if _is_word(phrase[-1]):
        pattern += r"(?![^\W_])"
    return sum(1 for _ in re.finditer(pattern, text.translate(QUOTES), re.IGNORECASE))


def _is_word(char: str) -> bool:
    return char.isalnum() and not _NO_EDGES.match(char)


def sentences(text: str) -> list[str]:
    """The sentences of a text; headings and titles (`# …`, `<<…>>`) are none."""
    found: list[str] = []
    for block in _blocks(text):
        start = 0
        for mark in _END.finditer(block):
            if _ends(block, start, mark):
                found.append(block[start : mark.end()].strip())
                start = mark.end()
        found.append(block[start:].strip())
    return [sentence for sentence in found if _stripped(sentence)]


_LIST_ITEM = re.compile(r"\s*(?:[*+•-]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|<<.*>>\s*$|[*_=-]{3,}\s*$)")
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+(?=\s|$)|[。！？।؟۔]+[\"'”’）」』]*")
_NEXT = re.compile(r"\S")
_TITLE = re.compile(
    "dr|mr|mrs|ms|mx|prof|st|gen|rep|sen|gov|capt|lt|col|sgt|rev|hon|vs|cf|e\\.?g|i\\.?e|approx|ca"
)
_NUMBERED = re.compile("nos?|figs?|eqs?|vol|pp?|ch|sec")
_SHORTENED = re.compile(
    "etc|inc|ltd|co|corp|jr|sr|bros|dept|min|max|u\\.s|u\\.k|u\\.n|e\\.u|a\\.m|p\\.m|ph\\.d|b\\.a|m\\.a|"
    "d\\.c|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|ave|blvd|rd|mt"
)


def _blocks(text: str) -> list[str]:
    """Stretches that no sentence crosses: paragraphs and list items, their markers taken off."""
    blocks: list[list[str]] = []
    grows = False
    for line in text.splitlines():
        item = _LIST_ITEM.match(line)
        if not line.strip() or _HEADING.match(line):
            grows = False
        elif item or not grows:
            blocks.append([line[item.end() :] if item else line])
            grows = True
        else:
            blocks[-1].append(line)
    return [" ".join(lines) for lines in blocks]


def _ends(block: str, start: int, mark: re.Match[str]) -> bool:
    """Whether a mark ends the sentence that began at `start`."""
    after = _NEXT.search(block, mark.end())
    following = after[0] if after else ""
    if not following or not mark[0].startswith((".", "…", "!", "?")):
        return True
    starts_lower = following.islower()
    if not mark[0].startswith(".") or mark[0].startswith(".."):
        return not (starts_lower and (len(mark[0]) > 1 or mark[0] == "…"))
    last = block[max(start, mark.start() - 20) : mark.start()].split()
    before = last[-1].lstrip("\"'“‘([*_").lower() if last else ""
    if _TITLE.fullmatch(before) or (_NUMBERED.fullmatch(before) and following.isdigit()):
        return False
    if _SHORTENED.fullmatch(before):
        return not starts_lower and not following.isdigit()
    initial = len(before) == 1 and before.isalpha() and before != "i"
    return not (initial and following.isupper())


def paragraphs(text: str) -> list[str]:
    """What blank lines separate."""
    return [part.strip() for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()]


def _stripped(token: str) -> str:
    """A token from its first letter or digit to its last; empty where it has none."""
    chars = [i for i, char in enumerate(token) if unicodedata.category(char)[0] in "LNM"]
    return token[chars[0] : chars[-1] + 1] if chars and any(map(str.isalnum, token)) else ""


def looks_english(text: str) -> bool:
    """Whether a text can be English: Latin letters, and its commonest words where it is long.

    From 20 words on, a tenth of them must be of the hundred commonest (in running English text it
    is about half, in other languages next to none).
    """
    letters = [char for char in text if char.isalpha()]
    latin = sum(1 for char in letters if "LATIN" in unicodedata.name(char, ""))
    if letters and latin < 0.9 * len(letters):
        return False
    found = words(plain(text))
    common = sum(_COMMON.fullmatch(word) is not None for word in found)
    return len(found) < 20 or common >= len(found) / 10


_COMMON = re.compile(
    "the of and to in is you that it he was for on are as with his they at be this have from or "
    "had by but not what all were we when your can said there an each which she do how their if "
    "will up about out many then them these so some her would make him into has two more no way "
    "could my than been who its now did get i it's don't am".replace(" ", "|")
)
