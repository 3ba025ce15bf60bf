"""Units of measurement: which words name the same one, and exact factors between them.

A table of what word problems use; a word that is not in it is a unit of its own name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_TABLE = """
length m 1: m meter meters metre metres
length cm 1/100: cm centimeter centimeters centimetre centimetres
length mm 1/1000: mm millimeter millimeters millimetre millimetres
length km 1000: km kilometer kilometers kilometre kilometres
length in 127/5000: in inch inches
length ft 381/1250: ft foot feet
length yd 1143/1250: yd yard yards
length mi 201168/125: mi mile miles
mass g 1: g gram grams gramme grammes
mass mg 1/1000: mg milligram milligrams
mass kg 1000: kg kilogram kilograms kilo kilos
mass lb 45359237/100000: lb lbs pound pounds
mass oz 45359237/1600000: oz ounce ounces
mass t 1000000: tonne tonnes
time s 1: s sec secs second seconds
time ms 1/1000: ms millisecond milliseconds
time min 60: min mins minute minutes
time h 3600: h hr hrs hour hours
time d 86400: day days
time wk 604800: week weeks
month month 1: month months
year year 1: year years yr yrs
volume l 1: l liter liters litre litres
volume ml 1/1000: ml milliliter milliliters millilitre millilitres
volume gal 473176473/125000000: gallon gallons gal
angle deg 1: degree degrees deg °
angle rad 0: radian radians rad
money $ 1: $ dollar dollars usd
money-cent ¢ 1: ¢ cent cents
money-euro € 1: € euro euros eur
money-gbp £ 1: £ gbp
money-inr ₹ 1: ₹ rupee rupees inr rs
money-jpy ¥ 1: ¥ yen jpy yuan rmb cny
temperature °C 1: celsius
temperature-f °F 1: fahrenheit
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """`dimension` tells what converts into what, `factor` how; powers stand in `power`.

    A factor of 0 converts into nothing but itself.
    """

    name: str
    dimension: str
    factor: Fraction
    power: int = 1


_UNITS: dict[str, Unit] = {}
for _line in _TABLE.strip().splitlines():
    _head, _, _names = _line.partition(": ")
    _dimension, _name, _factor = _head.split()
    for _word in _names.split():
        _UNITS[_word] = Unit(_name, _dimension, Fraction(_factor))

DOLLAR = _UNITS["$"]
CURRENCIES = "$€£₹¥¢"
_POWER = re.compile(r"^(.*?)\s*(?:\^\s*\{?\s*(-?\d)\s*\}?|(?<=[a-z])([23]))$")
_AREA = re.compile(r"^(?:(sq(?:uare|\.)?)|(cu(?:bic|\.)?))\s+(.+)$")
_AREA_AFTER = re.compile(r"^(.+?)\s+(?:(squared)|(cubed))$")


def read_unit(text: str) -> Unit | None:
    """The unit that a text names (folded, LaTeX gone), None where the text is empty."""
    text = " ".join(text.lower().replace(".", " ").split())
    if not text:
        return None
    power = 1
    found = _POWER.match(text)
    if found and found[1]:
        text, power = found[1], int(found[2] or found[3])
    found = _AREA.match(text)
    if found:
        power, text = (2 if found[1] else 3), found[3]
    found = _AREA_AFTER.match(text)
    if found:
        power, text = (2 if found[2] else 3), found[1]
    known = _UNITS.get(text)
    if known is not None:
        return Unit(known.name, known.dimension, known.factor, power)
    return Unit(_singular(text), "", Fraction(0), power)


def is_known(word: str) -> bool:
    """Whether a word is a unit of the table."""
    return word.lower() in _UNITS


def _singular(text: str) -> str:
    if text.endswith("ies") and len(text) > 4:
        return text[:-3] + "y"
    return text[:-1] if text.endswith("s") and not text.endswith("ss") and len(text) > 3 else text


def factor_between(one: Unit, other: Unit) -> Fraction | None:
    """How many of `other` one of `one` is; None where they do not convert."""
    if one.power != other.power:
        return None
    if one.name == other.name and one.dimension == other.dimension:
        return Fraction(1)
    if {one.name, other.name} == {"lb", "£"}:
        return Fraction(1)  # both are pounds in words
    if not one.dimension or one.dimension != other.dimension or not one.factor or not other.factor:
        return None
    return (one.factor / other.factor) ** one.power
