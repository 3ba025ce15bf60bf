"""Text answers: `exact` compares the answer as a whole, `contains` looks for it as a statement,
`regex` matches a pattern in linear time.

A mention is not an answer: `contains` passes only where the text is stated, not where it is
denied, asked, listed among others or offered as one of two.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from labelkit.codec import clean_text
from labelkit.patterns import linear_pattern
from labelkit.records import Reply, Task, Verdict
from labelkit.scorers import Binding, ScorerSettings, phrases
from labelkit.scorers.dates import read_dates
from labelkit.scorers.extract import AnswerPlace, extract
from labelkit.scorers.folding import fold, normalized, plain_words, spelt, view
from labelkit.scorers.verdicts import AnswerScorer, failed, passed, unanswered
from labelkit.seams import Draw, Scorer


class Exact(ScorerSettings):
    """`exact`: the answer is the gold, or one of a list of golds.

    `fold` compares as a person does: Unicode spellings, spaces, outer quotes and stops, a leading
    article; `ignore_case` letter case too. With `fold: false` every character counts.
    """

    KIND: ClassVar[str] = "exact"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "answer"

    answer: AnswerPlace = "auto"
    ignore_case: bool = True
    fold: bool = True

    def bind(self, binding: Binding) -> Scorer:
        return _ExactScorer(self)


class _ExactScorer(AnswerScorer):
    def __init__(self, settings: Exact) -> None:
        super().__init__(settings)
        self._settings = settings

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        said = self._comparable(found.candidate.text)
        if any(said == self._comparable(gold) for gold in gold_texts(task.gold)):
            return passed(found, "same text")
        return failed(found, "other text")

    def check_gold(self, task: Task) -> str | None:
        return check_texts(task.gold)

    def _comparable(self, text: str) -> str:
        if self._settings.fold:
            return plain_words(text, ignore_case=self._settings.ignore_case)
        return text.casefold() if self._settings.ignore_case else text


class Contains(ScorerSettings):
    """`contains`: the reply states the gold, one of a list of golds, or a given text.

    `mention: anywhere` looks for the text alone, whatever is said about it.
    """

    KIND: ClassVar[str] = "contains"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "text"

    answer: AnswerPlace = "whole"
    text: str | Annotated[list[str], Field(min_length=1)] | None = None
    ignore_case: bool = True
    mention: Literal["stated", "anywhere"] = "stated"

    def bind(self, binding: Binding) -> Scorer:
        return _ContainsScorer(self)


class _ContainsScorer(AnswerScorer):
    def __init__(self, settings: Contains) -> None:
        super().__init__(settings)
        self._settings = settings

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        text = self._settings.text
        golds = gold_texts(task.gold) if text is None else [text] if isinstance(text, str) else text
        why = UNMENTIONED
        for gold in golds:
            if self._settings.mention == "anywhere":
                if self._folded(gold) in self._folded(found.candidate.text):
                    return passed(found, "mentioned")
                continue
            problem = objection(found.candidate.text, gold, ignore_case=self._settings.ignore_case)
            if problem is None:
                return passed(found, "stated")
            if problem != UNMENTIONED:
                why = problem
        return failed(found, f"the text {why}", no_answer=why != UNMENTIONED)

    def check_gold(self, task: Task) -> str | None:
        return check_texts(task.gold) if self._settings.text is None else None

    def _folded(self, text: str) -> str:
        text = " ".join(fold(text).split())
        return text.casefold() if self._settings.ignore_case else text


class Regex(ScorerSettings):
    """`regex`: a pattern (RE2 syntax) is found in the answer; without one, the gold is the pattern.

    The answer is the whole reply, to the character, unless `answer` says otherwise. `match: full`
    wants the pattern to cover all of it.
    """

    KIND: ClassVar[str] = "regex"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "pattern"

    answer: AnswerPlace = "whole"
    pattern: Annotated[str, Field(min_length=1)] | None = None
    match: Literal["search", "full"] = "search"
    ignore_case: bool = False

    @model_validator(mode="after")
    def _compiles(self) -> Regex:
        if self.pattern is not None:
            linear_pattern(self.pattern, ignore_case=self.ignore_case)
        return self

    def bind(self, binding: Binding) -> Scorer:
        return _RegexScorer(self)


class _RegexScorer(AnswerScorer):
    def __init__(self, settings: Regex) -> None:
        super().__init__(settings)
        self._settings = settings

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        source = self._settings.pattern if self._settings.pattern is not None else str(task.gold)
        pattern = linear_pattern(source, ignore_case=self._settings.ignore_case)
        whole = self._settings.answer == "whole"
        text = clean_text(reply.text) if whole else found.candidate.text
        matches = (
            pattern.whole(text)
            if self._settings.match == "full"
            else pattern.first(text) is not None
        )
        return passed(found, "pattern") if matches else failed(found, "the pattern does not match")

    def check_gold(self, task: Task) -> str | None:
        if self._settings.pattern is not None:
            return None
        if not isinstance(task.gold, str) or not task.gold:
            return "must be a pattern, since the scorer has none"
        try:
            linear_pattern(task.gold, ignore_case=self._settings.ignore_case)
        except ValueError as error:
            return f"is {error}"
        return None


def gold_texts(gold: JsonValue) -> list[str]:
    """The accepted texts of a gold: one, or a list of them."""
    golds = gold if isinstance(gold, list) else [gold]
    return [text if isinstance(text, str) else str(text) for text in golds]


def check_texts(gold: JsonValue) -> str | None:
    """Why a gold is not a text or a list of texts that something can be compared with."""
    golds = gold if isinstance(gold, list) else [gold]
    if gold is None:
        return "is missing: a text or a list of texts"
    if not golds:
        return "is an empty list"
    for text in golds:
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            return "must be text or a list of texts"
        if not plain_words(str(text)) and not str(text).strip():
            return "is empty"
    return None


_SENTENCE = re.compile(r"[^.!?;\n]+(?:[.](?=\S)[^.!?;\n]*)*[.!?;\n]*")
_DENIAL = re.compile(
    r"\b(?:not|never|neither|nor|cannot|rather\sthan|instead\sof|except|other\sthan|unlike|wrong"
    r"|incorrect|false|mistak\w+|no\slonger)\b|n't\b"
)
_DENIED_AFTER = re.compile(
    r"^\W{0,3}(?:is|was|would\sbe|seems)\s(?:\w+\s)?(?:not|wrong|incorrect|false|never)\b|^\W{0,3}(?:isn't|wasn't)"
)
_TURN = re.compile(r"\b(?:but(?:\srather)?|it(?:\sis|'s)|rather(?!\sthan)|so|therefore)\b|[,;:]")
_OR = re.compile(
    r"\b(?:or|and/or|either|maybe|perhaps|possibly|might|could|whether|used\sto|formerly|unsure"
    r"|anything\sbut|everything\sbut|all\sbut|know\sif)\b"
)
_OR_AFTER = re.compile(r"\W*(?:and/)?or\b|/\w")
_AND_ANOTHER = re.compile(r"\W*(?:and|&)\W")
_FEW_WORDS = 6
_OPPOSITES = {
    "yes": "no",
    "true": "false",
    "correct": "incorrect",
    "right": "wrong",
    "valid": "invalid",
    "possible": "impossible",
}
_OPPOSITES |= {opposite: word for word, opposite in _OPPOSITES.items()}


UNMENTIONED = "is not mentioned"


def objection(text: str, gold: str, *, ignore_case: bool = True) -> str | None:
    """Why a text does not state the gold, or None where it does."""
    dates = read_dates(gold)
    if len(dates) == 1 and plain_words(gold) == plain_words(gold[slice(*dates[0].span)]):
        said = read_dates(text)
        if not said:
            return UNMENTIONED
        if any(date.day != dates[0].day for date in said):
            return (
                "stands beside another date"
                if dates[0].day in [d.day for d in said]
                else UNMENTIONED
            )
        return _objection_at(view(text), *said[-1].span)
    folded = _unaccented(spelt(text))
    said_text = _unaccented(plain_words(text, ignore_case=ignore_case))
    wanted = _unaccented(plain_words(gold, ignore_case=ignore_case))
    if said_text == wanted:
        return None
    shown = folded.casefold() if ignore_case else folded
    opposite = _OPPOSITES.get(wanted)
    if opposite is not None and re.search(rf"\b{opposite}\b", shown):
        return "stands beside its opposite"
    mentions = [found.span() for found in _mention(wanted).finditer(shown)]
    if not mentions:
        return UNMENTIONED
    if opposite is not None and not _is_offered(shown, *mentions[-1]):
        return "is mentioned but not offered as the answer"
    return _objection_at(shown, *mentions[-1])


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    parts = normalized("NFD", text)
    return "".join(char for char in parts if not unicodedata.combining(char))


@lru_cache(maxsize=4096)
def _mention(wanted: str) -> re.Pattern[str]:
    """The text as a word or number of its own."""
    before = r"(?<![\w.,-])" if wanted[:1].isdigit() else r"(?<!\w)"
    return re.compile(rf"{before}{re.escape(wanted)}(?!\w|[.,]\d|[+#])")


def _is_offered(shown: str, begin: int, end: int) -> bool:
    """Whether a yes or no stands as an answer: at a clause's start or end, not inside a phrase."""
    before, after = shown[:begin].rstrip(), shown[end:].lstrip()
    starts = not before or before[-1] in ".,;:!?*\"'(" or before.endswith((" is", "answer"))
    return starts and (not after or not after[0].isalnum())


def _objection_at(shown: str, begin: int, end: int) -> str | None:
    for sentence in _SENTENCE.finditer(shown, max(0, shown.rfind("\n", 0, begin) + 1)):
        if sentence.end() > begin:
            break
    else:
        return None
    before, after = shown[sentence.start() : begin], shown[end : sentence.end()]
    denials = list(_DENIAL.finditer(before))
    if denials and not _TURN.search(before, denials[-1].end()):
        return "is mentioned only to be denied"
    if _DENIED_AFTER.match(after):
        return "is mentioned only to be denied"
    if sentence[0].rstrip().endswith("?"):
        return "is mentioned only in a question"
    if _OR.search(before[-80:]) or _OR_AFTER.match(after) or before.endswith("/"):
        return "is offered beside another answer"
    if _AND_ANOTHER.match(after) and len(sentence[0].split()) <= _FEW_WORDS:
        return "is offered beside another answer"
    items = [item.split() for item in re.split(r",|\band\b", sentence[0].rstrip(" .!;\n"))]
    if len(items) >= 3 and all(0 < len(item) <= 3 for item in items[1:-1]) and len(items[0]) <= 3:
        return "is one of a list"
    if phrases.is_taken_back(shown, end):
        return "is taken back"
    return None
