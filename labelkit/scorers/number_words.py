"""English numbers in words: twelve, two hundred and five, two thirds, one and a half, seventh."""

from __future__ import annotations

import re
from fractions import Fraction

_UP_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
WORDS = {word: value for value, word in enumerate(_UP_TO_TWENTY.split())} | {
    word: value for value, word in zip(range(30, 100, 10), _TENS.split(), strict=True)
}
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
ORDINALS = {word: value for value, word in enumerate(_ORDINALS.split(), 1)}
_PARTS = {"half": 2, "halve": 2, "quarter": 4} | {
    word: value for word, value in ORDINALS.items() if 3 <= value <= 10
}
_COUNT = "|".join(sorted([*WORDS, *SCALES], key=len, reverse=True))
_SPELT = re.compile(
    rf"(?P<sign>(?:minus|negative)\s+)?(?:"
    rf"(?P<count>(?:{_COUNT})\b(?:[\s-]+(?:and\s+)?(?:{_COUNT})\b){{0,20}})"
    rf"(?:[\s-]+(?P<part>{'|'.join(_PARTS)})s?\b|(?P<more>\s+and\s+(?:a|one)\s+half\b))?"
    rf"|(?:a\s+)?(?P<alone>half|quarter)\b|(?P<ordinal>{'|'.join(ORDINALS)})$)",
    re.IGNORECASE,
)


def read_spelt(text: str) -> tuple[Fraction, int] | None:
    """The number in words at the start of a text, and its end; None where there is none."""
    found = _SPELT.match(text)
    if found is None:
        return None
    if found["count"]:
        count = read_words(found["count"])
        if count is None:
            return None
        value = Fraction(count)
        if found["part"]:
            value /= _PARTS[found["part"].lower()]
        elif found["more"]:
            value += Fraction(1, 2)
    elif found["alone"]:
        value = Fraction(1, _PARTS[found["alone"].lower()])
    else:
        value = Fraction(ORDINALS[found["ordinal"].lower()])
    return (-value if found["sign"] else value), found.end()


def read_words(text: str) -> int | None:
    """The value of an English number in words, up to trillions; None where it is none."""
    words = text.lower().replace("-", " ").split()
    if not words or len(words) > 30:
        return None
    total = 0
    group = 0
    last = "start"
    for word in words:
        if word == "and" and last == "scale":
            continue
        if word in WORDS:
            value = WORDS[word]
            if last in ("unit", "teen") or (last == "ten" and not 0 < value < 10):
                return None
            group += value
            last = "ten" if value >= 20 else "teen" if value >= 10 or value == 0 else "unit"
        elif word in SCALES and last != "start":
            if word in ("dozen", "hundred"):
                group *= SCALES[word]
            else:
                total, group = total + group * SCALES[word], 0
            last = "scale"
        elif word in ("a", "an") and len(words) > 1 and last == "start":
            group, last = 1, "unit"
        else:
            return None
    return total + group if last != "start" else None
