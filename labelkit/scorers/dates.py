"""Calendar dates in text, in the spellings of English prose and ISO."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

_NAMES = "january february march april may june july august september october november december"
_MONTHS = _NAMES.split()
_NUMBER_OF = (
    {name: number for number, name in enumerate(_MONTHS, 1)}
    | {name[:3]: number for number, name in enumerate(_MONTHS, 1)}
    | {"sept": 9}
)
_MONTH = "|".join(sorted(_NUMBER_OF, key=len, reverse=True))
_DATE = re.compile(
    rf"\b(?:(?P<m1>{_MONTH})\.?\s+(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y1>\d{{4}})"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m2>{_MONTH})\.?,?\s+(?P<y2>\d{{4}})"
    r"|(?P<y3>\d{4})-(?P<m3>\d{2})-(?P<d3>\d{2}))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Dated:
    """A date and its range in the text."""

    day: date
    span: tuple[int, int]


def read_dates(text: str) -> list[Dated]:
    """Every full date (day, month, year) in order; days that no calendar has are left out."""
    found = []
    for match in _DATE.finditer(text):
        month = match["m1"] or match["m2"]
        number = _NUMBER_OF[month.lower()] if month else int(match["m3"])
        year = int(match["y1"] or match["y2"] or match["y3"])
        day_of_month = int(match["d1"] or match["d2"] or match["d3"])
        try:
            day = date(year, number, day_of_month)
        except ValueError:
            continue
        found.append(Dated(day, match.span()))
    return found
