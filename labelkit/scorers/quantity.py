"""A numeric answer as a quantity: an exact value with its unit, percent sign, base or clock form.

`read_quantity` wants one quantity and no other number beside it; what it cannot read it refuses
with a reason. It never looks for 'the number' in prose, except where a whole reply is one short
statement that holds exactly one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal as OneOf

from labelkit.scorers import phrases
from labelkit.scorers.arithmetic import Huge, UnreadableError, Value, read_value
from labelkit.scorers.folding import fold
from labelkit.scorers.latex_layout import without_layout
from labelkit.scorers.number_words import SCALES, read_spelt
from labelkit.scorers.units import CURRENCIES, DOLLAR, Unit, is_known, read_unit

MAX_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Quantity:
    """What was read. `value` of a percentage is the number before the sign.

    `places`: decimal places as written, None for integers and fractions. `base`: the base it was
    written in. `parts`: the numbers of a clock time or a ratio (`form` tells which); `value` is
    then None. `trailing`: prose after the number, which may or may not name a unit.
    `exact_places`: what an exact value was said to be approximately, as written.
    """

    value: Value | None
    places: int | None = None
    percent: bool = False
    unit: Unit | None = None
    base: int | None = None
    form: OneOf["number", "time", "ratio"] = "number"
    parts: tuple[Fraction | str, ...] = ()
    approximation: Fraction | None = None

    @property
    def kind(self) -> str:
        """The gold's type as a rule names it."""
        if self.form != "number":
            return self.form
        if self.base is not None:
            return "number in a base"
        if self.percent:
            return "percent"
        if self.unit is not None:
            return "number with a unit"
        if isinstance(self.value, Fraction) and self.value.denominator == 1:
            return "integer"
        return "decimal" if self.places is not None else "fraction"


class HedgedError(UnreadableError):
    """The text offers several answers, or does not commit itself to one."""


_SIMPLE = re.compile(
    r"(\$?)(\\?\$)?(-?(?:\d{1,3}(?:,\d{3})+|\d{1,300})(\.\d{1,300})?)(\$?)", re.ASCII
)
_DELIMITERS = re.compile(
    r"^\s*(?:\$\$(.*?)\$\$|\$((?:[^$\\]|\\.)*)\$|\\\((.*?)\\\)|\\\[(.*?)\\\])\s*[.,;]?\s*$",
    re.DOTALL,
)
_TEXT = re.compile(
    r"\\(?:text|mbox|mathrm|mathbf|textbf|textit|mathit|operatorname)\s*\{([^{}]*)\}"
)
_SPACING = re.compile(r"\\[;:!> ]|\\,(?!\d)|~|\\q?quad(?![A-Za-z])")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![A-Za-z])|°")
_TEMPERATURE = re.compile(r"degrees\s*([CF])(?![A-Za-z])")
_SCALE_NAMES = {"C": "celsius", "F": "fahrenheit"}
_CROSS = re.compile(r"(?<=\d)\s+[xX]\s+(?=\d)")
_EMPHASIS = re.compile(r"\*\*|__|`")
_LABEL = re.compile(r"^[A-Za-z](?:_\{?\w{1,8}\}?)?(?:\([A-Za-z]\))?$|^[A-Za-z][A-Za-z ]{0,60}$")
_VARIABLE = re.compile(r"[A-Za-z](?:_\{?\w{1,8}\}?)?")
_SEVERAL = re.compile(r"[,;]\s*[A-Za-z]|\band\b", re.I)
_EQUALS = re.compile(r"(?<![<>!=:])=(?!=)")
_ABOUT_SIGN = re.compile(r"≈|\\approx(?![A-Za-z])|\\simeq(?![A-Za-z])|\\doteq(?![A-Za-z])|≃|≅")
_ABOUT = re.compile(
    r"(?:about|around|approximately|approx\.?|roughly|nearly|almost|circa|~|≈)\s*", re.I
)
_EXACTLY = re.compile(
    r"(?:(?:exactly|just|only|simply|equal\s+to|a\s+total\s+of"
    r"|the\s+(?:number|value|integer|fraction))\s+|the\s+(?=\d))",
    re.I,
)
_NEGATIVE = re.compile(r"(?:minus|negative)\s+(?=[\d.\\$])", re.I)
_REASON = re.compile(
    r"(?:[,;]\s*|\s+)(?:because|since|as|so|where|which|given|for|when|if|thus|hence|therefore)\b.*$",
    re.I | re.S,
)
_ASIDE = re.compile(r"\s*\([^()\d]*\)\.?\s*$")
_TIME = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?\s*([ap]\.?\s?m\b\.?)?", re.I)
_RATIO = re.compile(r"\d+(?:\.\d+)?(?:\s*:\s*\d+(?:\.\d+)?)+")
_CURRENCY_FIRST = re.compile(
    rf"([-+]?)\s*(?:(?:US|A|C)?(\\?[{CURRENCIES}])|(Rs|USD|EUR|GBP|INR|JPY)\b\.?)\s*(?=[-\d.])"
)
_SCALE = re.compile(rf"\s*({'|'.join(SCALES)})s?\b", re.I)
_PERCENT = re.compile(r"\s*(?:\\?%|percent\b|per\s?cent\b)(?!\s*point)", re.I)
_UNIT = re.compile(
    rf"\s*((?:sq(?:uare)?\.?\s|cu(?:bic)?\.?\s)?(?:\\?[{CURRENCIES}]|[A-Za-z°μ][A-Za-z°]*\.?)"
    r"(?:\s?(?:\^\s?\{?\s?-?\d\s?\}?|\s(?:squared|cubed)\b))?"
    r"(?:\s?(?:/|per\b)\s?[A-Za-z]+(?:\^\{?-?\d\}?)?)?)"
)
_CONNECTIVE_WORDS = (
    "because since as when which so where for in per if by due that is are was and with after "
    "from at on of to we i it he she they the a an this these total altogether left each every "
    "more less than remaining long tall wide high old away apart overall exactly only then hence "
    "thus therefore"
)
_CONNECTIVES = frozenset(_CONNECTIVE_WORDS.split())
_DIGIT = re.compile(r"\d")
_RANGE = re.compile(r"^\s*(?:-|to\b|through\b|and\b|,|;|:|&|\+|/|\^|±|\\pm\b)\s*[-$\\({]*\d", re.I)


def read_quantity(text: str, *, exact: bool = True) -> Quantity:
    """The one quantity that a text is. `exact`: nothing but a unit may follow it.

    Raises UnreadableError with the reason, HedgedError where more than one answer is offered.
    """
    if len(text) > MAX_CHARACTERS and not text.strip().isdecimal():
        raise UnreadableError(f"is longer than {MAX_CHARACTERS:,} characters")
    simple = _SIMPLE.fullmatch(text)
    if simple and (simple[5] or not (simple[1] and simple[2])):
        return _plain(simple)
    text = _cleaned(text)
    if exact:
        return _chain(text, exact)
    text = _REASON.sub("", text)
    if phrases.hedges(text):
        raise HedgedError("the reply hedges between answers")
    return _chain(_ASIDE.sub("", text), exact)


def _plain(simple: re.Match[str]) -> Quantity:
    """The quantity of digits and a dollar sign, which most answers are: $ alone is money, around
    the number it is LaTeX's."""
    opening, money, digits, part, closing = simple.groups()
    priced = money is not None or bool(opening) > bool(closing)
    places = len(part) - 1 if part else None
    value = Fraction(digits.replace(",", ""))
    return Quantity(value, places, unit=DOLLAR if priced else None)


def _cleaned(text: str) -> str:
    text = fold(text).strip()
    found = _DELIMITERS.match(text)
    while found:
        text = next(part for part in found.groups() if part is not None).strip()
        found = _DELIMITERS.match(text)
    if "\\" in text:
        text = without_layout(text)
        for _ in range(3):
            text, count = _TEXT.subn(r" \1 ", text)
            if not count:
                break
        text = _SPACING.sub(" ", text)
        text = text.replace("\\boxed", "").replace("\\%", "%")
    text = _DEGREES.sub(" degrees", text)
    text = _TEMPERATURE.sub(lambda found: _SCALE_NAMES[found[1]], text)
    text = _CROSS.sub("*", _EMPHASIS.sub("", text)).strip()
    cue = re.match(r"(?:the\s)?(?:final\s)?answer\s?(?:is|:|=)\s*", text, re.I)
    return text[cue.end() :] if cue else text


def _chain(text: str, exact: bool) -> Quantity:
    """The value of `a = b = c`: its last side, the numeric sides being equal; of `a ≈ b`: a."""
    if phrases.hedges(text):
        raise HedgedError("the reply hedges between answers")
    exact_part, *rounded = _ABOUT_SIGN.split(text, maxsplit=1)
    if rounded and exact_part.strip() and not _LABEL.match(exact_part.strip(" =$")):
        quantity = _chain(exact_part, True)
        try:
            said = _chain(rounded[0], exact)
        except UnreadableError:
            return quantity
        return replace(
            quantity,
            approximation=said.value if isinstance(said.value, Fraction) else None,
            unit=quantity.unit or said.unit,
        )
    sides = _EQUALS.split(text)
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[1].strip("$ ")):
        sides.reverse()
    if any(_SEVERAL.search(side) for side in sides[1:-1]):
        raise HedgedError("more than one number where one is asked")
    last = _quantity(sides[-1].strip(), exact)
    for side in sides[:-1]:
        side = side.strip()
        if not side or _LABEL.match(side.strip("$ ")):
            continue
        try:
            earlier = _quantity(side, True)
        except HedgedError:
            raise
        except UnreadableError:
            if len(sides) == 2 and not _DIGIT.search(side):
                continue
            if _DIGIT.match(side) and _DIGIT.search(side):
                continue
            continue
        if earlier.value != last.value and earlier.value is not None:
            raise UnreadableError("has sides that are not equal")
    return last


def _quantity(text: str, exact: bool) -> Quantity:
    lead = _EXACTLY.match(text)
    if lead:
        text = text[lead.end() :]
    about = _ABOUT.match(text)
    if about:
        quantity = _quantity(text[about.end() :], exact)
        if quantity.places is None:
            raise UnreadableError("is only said to be about a number")
        return quantity
    clock = _TIME.match(text)
    if clock and not _DIGIT.match(text[clock.end() :][:1]) and text[clock.end() :][:1] != ":":
        _settle(text[clock.end() :], None, exact)
        hour, minute, second, half = clock.groups()
        half = half.lower().replace(".", "").replace(" ", "") if half else ""
        return Quantity(None, form="time", parts=(str(int(hour)), minute, second or "00", half))
    ratio = _RATIO.match(text)
    if ratio:
        _settle(text[ratio.end() :], None, exact)
        parts = tuple(Fraction(part.strip()) for part in ratio[0].split(":"))
        return Quantity(None, form="ratio", parts=parts)
    negative = _NEGATIVE.match(text)
    if negative:
        text = "-" + text[negative.end() :]
    currency = _CURRENCY_FIRST.match(text)
    unit = None
    if currency:
        unit = read_unit((currency[2] or currency[3]).lstrip("\\"))
        text = currency[1] + text[currency.end() :]
    spelt = read_spelt(text)
    if spelt is not None:
        value, end = spelt
        return _with_unit(Quantity(value, unit=unit), text[end:], exact)
    read = read_value(text)
    places = read.literal.places if read.literal else None
    base = read.literal.base if read.literal else None
    rest = text[read.end :]
    value_read = read.value
    scale = _SCALE.match(rest)
    if scale and isinstance(value_read, Fraction):
        value_read, places = value_read * SCALES[scale[1].lower()], None
        rest = rest[scale.end() :]
    return _with_unit(Quantity(value_read, places, base=base, unit=unit), rest, exact)


def _with_unit(quantity: Quantity, rest: str, exact: bool) -> Quantity:
    percent = _PERCENT.match(rest)
    if percent:
        _settle(rest[percent.end() :], None, exact)
        return replace(quantity, percent=True)
    if rest[:1].isalnum() and isinstance(quantity.value, Huge):
        raise UnreadableError("is followed by what is no unit")
    found = _UNIT.match(rest)
    if found is None:
        _settle(rest, None, exact)
        return quantity
    words = found[1].strip().lstrip("\\")
    first = re.split(r"[\s^/]", words)[0].lower().rstrip(".")
    if first in _CONNECTIVES and not (exact and first in ("in",)):
        if exact and first not in ("in", "total", "altogether", "left"):
            raise UnreadableError("has prose after the number")
        _settle(rest, first, exact)
        return quantity
    if len(first) == 1 and rest[:1].isalpha() and not is_known(first):
        raise UnreadableError("is a formula, not a number")
    after = rest[found.end() :]
    _settle(after, first, exact)
    unit = read_unit(words)
    if unit is not None and not unit.dimension and not exact:
        unit = read_unit(words + after.split(",")[0] if len(after) < 40 else words)
    return quantity if quantity.unit is not None else replace(quantity, unit=unit)


def _settle(rest: str, first: str | None, exact: bool) -> None:
    """Refuse what follows a quantity where it makes it another one, or one of several."""
    if phrases.hedges(rest[:80]):
        raise HedgedError("the reply hedges between answers")
    rest = rest.strip().lstrip(")]}*$\"'").strip().removesuffix("\\")
    if not rest:
        return
    if rest[0].isdigit():
        raise HedgedError("more than one number where one is asked")
    if "?" in rest[:40]:
        raise UnreadableError("is a question")
    if first == "and" and _DIGIT.search(rest):
        raise HedgedError("more than one number where one is asked")
    if first is None and _RANGE.match(rest):
        raise HedgedError("more than one number where one is asked")
    if exact and rest[:1] in "+-*":
        raise UnreadableError("is more than a number")
    if first is None and rest[:1] in "\\^_!/<>=({[|" and rest[:2] not in ("\\)", "\\]", "\\$"):
        raise UnreadableError("is more than a number")
    if exact and _DIGIT.search(rest):
        raise HedgedError("more than one number where one is asked")
    if first is not None and first not in _CONNECTIVES and re.match(r"(?:and\s+|,\s*)?\d", rest):
        raise UnreadableError("is a quantity in several parts")


_SHORT = 200
_NUMBERISH = re.compile(
    r"(?<![\w.,/^])-?(?:\\?[$€£₹¥]\s?)?\d[\d.,:/]*(?:\s\d+/\d+|(?:\s:\s\d+)+)?(?:[eE][-+]?\d+)?(?<![.,:/])\s*(?:%|\w*)"
)
_WITHHELD = re.compile(
    r"\b(?:not|no|never|cannot|without|unless|if|except|neither|at\s(?:least|most)|(?:more|less|fewer"
    r"|greater|larger|smaller)\sthan|over|under|above|below|between|about|around|roughly|nearly|almost"
    r"|approximately|step|part|question|example|case|equation|figure|option|how|what|which|error|http"
    r"|suppose|let|given|assume|was\stold|asked)\b|n't\b|[?]",
    re.I,
)


_COPULA = re.compile(
    r"^.*?\b(?:is|are|was|were|equals?|becomes?|be)\b:?\s+(?=[\\$({\[-])", re.I | re.S
)
_SAYS = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|comes?\s(?:out\s)?to|amounts?\sto|costs?|has|have|had|gets?"
    r"|got|makes?|made|earns?|needs?|takes?|leaves?|left|gives?|pays?|runs?|spends?|weighs?"
    r"|measures?|totals?|yields?|becomes?|remains?|obtain|find|arrives?|starts?|ends?|meet)\b|[:=])"
    r"\W*(?:\w+\W+){0,2}$",
    re.I,
)
_ADVERBIAL = re.compile(
    r"\b(?:in|on|of|for|from|by|with|to|at|step|part|page|chapter|line|section|year|since|than|per"
    r"|room|until|after|before|during|type|grade|class|version|day|week)\W*$",
    re.I,
)
_REACHES = re.compile(r"\b(?:comes?\s(?:out\s)?to|amounts?\sto|total\sof)\W*$", re.I)
_SO = re.compile(r"(?:^|[,;.]\s*|\s)(?:so|thus|hence|therefore)\b,?\s+", re.I)


def read_statement(text: str) -> Quantity:
    """The quantity of a whole reply: it is nothing else, or one short statement with one number."""
    try:
        return read_quantity(text)
    except UnreadableError as error:
        refused = error
    folded = fold(text).strip()
    if len(folded) > _SHORT or "\n" in folded or re.search(r"[.!?;]\s", folded):
        raise refused
    *_, claim = _SO.split(folded)
    if _WITHHELD.search(claim) or phrases.hedges(claim):
        raise refused
    copula = _COPULA.match(claim)
    if copula:
        return read_quantity(claim[copula.end() :].rstrip(" ."), exact=False)
    numbers = list(_NUMBERISH.finditer(claim))
    if len(numbers) != 1:
        raise refused
    start = numbers[0].start()
    said, lead = claim[start:].strip(" ."), claim[:start]
    stated = _SAYS.search(lead) and (not _ADVERBIAL.search(lead) or _REACHES.search(lead))
    if not stated and not (_TIME.match(said) and lead.rstrip().endswith(" at")):
        raise refused
    return read_quantity(said, exact=False)
