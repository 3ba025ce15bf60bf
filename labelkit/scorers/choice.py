"""Multiple choice: the letters that a reply offers as its answer, never letters in its prose.

An option's own text counts where it names exactly one option and the reply gives no letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, JsonValue, field_validator

from labelkit.records import Reply, Task, Verdict
from labelkit.scorers import Binding, ScorerSettings, phrases
from labelkit.scorers.extract import AnswerPlace, Candidate, extract
from labelkit.scorers.folding import fold, plain_words
from labelkit.scorers.text import UNMENTIONED, objection
from labelkit.scorers.verdicts import AnswerScorer, failed, passed, unanswered
from labelkit.seams import Draw, Scorer


class Choice(ScorerSettings):
    """`choice`: gold is a letter, or a list of letters that must all be given and no other.

    Options come from `options` here (a list, or texts by letter), else from the task's
    `metadata.options`; `letters` alone says which letters there are. Default letters: A to J.
    """

    KIND: ClassVar[str] = "choice"
    PURE: ClassVar[bool] = True
    SHORT: ClassVar[str | None] = "answer"

    answer: AnswerPlace = "auto"
    letters: Annotated[str, Field(min_length=2)] | None = None
    options: dict[str, str] | list[str] | None = None

    @field_validator("letters")
    @classmethod
    def _distinct(cls, letters: str | None) -> str | None:
        if letters is not None and (len(set(letters)) < len(letters) or not letters.isalnum()):
            raise ValueError("must be different letters or digits")
        return letters

    def bind(self, binding: Binding) -> Scorer:
        return _ChoiceScorer(self)


class _ChoiceScorer(AnswerScorer):
    def __init__(self, settings: Choice) -> None:
        super().__init__(settings)
        self._settings = settings
        if settings.options is None:
            self.reads = frozenset({"metadata.options"})

    async def score(self, task: Task, reply: Reply, draw: Draw) -> Verdict:
        options = self._options(task)
        wanted = _gold_letters(task.gold, options)
        found = extract(reply, self._settings.answer)
        if found.candidate is None:
            return unanswered(found)
        if found.hedged and len(wanted) == 1:
            return failed(found, "the reply hedges between answers", no_answer=True)
        given = _offered(found.candidate, options)
        if isinstance(given, str):
            return failed(found, given, no_answer=True)
        for rival in found.rivals:
            also = _offered(rival, options)
            if isinstance(also, frozenset) and also != given:
                if len(wanted) == 1:
                    return failed(found, "the reply gives different answers", no_answer=True)
                given |= also
        if given == wanted:
            return passed(found, "letters")
        if len(given) > 1 and len(wanted) == 1:
            return failed(found, "several options where one is asked", no_answer=True)
        return failed(found, f"chose {', '.join(sorted(given))}", decided="letters")

    def check_gold(self, task: Task) -> str | None:
        options = self._options(task)
        wanted = _gold_letters(task.gold, options)
        if not wanted:
            return f"names none of the options {', '.join(options)}"
        return None

    def _options(self, task: Task) -> Mapping[str, str]:
        given = (
            self._settings.options
            if self._settings.options is not None
            else task.metadata.get("options")
        )
        if isinstance(given, list):
            return {chr(ord("A") + place): str(text) for place, text in enumerate(given[:26])}
        if isinstance(given, Mapping):
            options = {str(letter): str(text) for letter, text in given.items()}
            raised = {letter.upper(): text for letter, text in options.items()}
            return raised if len(raised) == len(options) else options
        return dict.fromkeys(self._settings.letters or "ABCDEFGHIJ", "")


def _gold_letters(gold: JsonValue, options: Mapping[str, str]) -> frozenset[str]:
    """The letters of a gold: `B`, `(B)`, `A, C`, a list, or one option's text; empty if unknown."""
    if isinstance(gold, list):
        parts = [_gold_letters(part, options) for part in gold]
        return frozenset().union(*parts) if all(parts) else frozenset()
    if isinstance(gold, bool) or not isinstance(gold, str | int):
        return frozenset()
    offered = _offered(Candidate(str(gold), None, "gold"), options)
    return offered if isinstance(offered, frozenset) else frozenset()


_WRAPPING = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathsf|rm|bf|boxed|fbox)(?![A-Za-z])\s*"
    r"|\\[,;!()\[\] ]|\\quad"
)
_MARKS = " \t\n*_`$~\"'.,;:!#>{}"
_LEADING_MARKS = re.compile(f"[{re.escape(_MARKS)}]*")
_NAMES = (
    r"(?:the\s+|my\s+)?(?:(?:correct|right|best|final|selected|chosen)\s+){0,3}"
    r"(?:answer|option|choice|statement)s?"
)
_NAMED = re.compile(rf"(?:{_NAMES}\s*(?:is\s*|are\s*)?[:=]?\s*)+", re.IGNORECASE)
_SURELY = re.compile(
    r"^(?:(?:definitely|clearly|certainly|probably|obviously|so|thus|hence|therefore)[,:]?\s+)+",
    re.IGNORECASE,
)
_STATED = re.compile(
    rf"(?:^|(?<=[\s,;:(]))(?:(?:{_NAMES}|it|that)(?:\s+"
    r"(?:must\s+be|should\s+be|has\s+to\s+be|is|are)|'s)|i(?:'d|\s+would|\s+will)?\s+(?:choose|chose|pick"
    r"|select|go\s+with|say))\s+(?!not\b)",
    re.IGNORECASE,
)
_RIGHT = re.compile(
    r"\b([A-Za-z0-9])\)?\s+is\s+(?:the\s+)?(?:right|correct|true)\b(?:\s+(?:answer|option|choice))?"
)
_JOIN = re.compile(r"\s*(?:,\s*(?:and\s+)?|;\s*|&\s*|\band\s+|\+\s*|/\s*|\s)\s*", re.IGNORECASE)
_PROSE = re.compile(
    r"as|because|since|which|for|given|when|if|where|by|due|that|is|,|\.|;|:|-|—|!|\(|\[",
    re.IGNORECASE,
)
_AND_OR = re.compile(r"(?:and|or)\b")
_VISIBLE = re.compile(r"\S")


def _offered(candidate: Candidate, options: Mapping[str, str]) -> frozenset[str] | str:
    """The letters that a candidate offers, or why it offers none."""
    text = _WRAPPING.sub("", fold(candidate.text)).replace("{", "").replace("}", "")
    text = text.strip(_MARKS + "\\")
    text = _SURELY.sub("", text, count=1)
    named = _NAMED.match(text)
    if named and named.end() < len(text):
        text = text[named.end() :].strip(_MARKS)
    elif candidate.rule == "whole":
        stated = _last_stated(text, options)
        if stated is None:
            right = [found[1] for found in _RIGHT.finditer(text) if found[1] in options]
            if len(right) == 1:
                return frozenset(right)
        else:
            text = stated
    letters, end = _leading_letters(text, options)
    rest = text[end:]
    if phrases.hedges(rest[:80] if letters else text[:80]):
        return "the reply hedges between answers"
    if letters:
        if _DENIED.match(rest):
            return "no option is offered as the answer"
        return _with_text(letters, rest, options)
    by_text = [letter for letter, option in options.items() if option and _same(text, option)]
    if not by_text and candidate.rule == "whole" and "\n" not in text:
        by_text = _stated_options(text, options)
    if len(by_text) == 1:
        return frozenset(by_text)
    if (
        candidate.exact
        and len(text) > 1
        and len(set(text)) == len(text)
        and set(text) <= set(options)
    ):
        return frozenset(text)
    return "no option is offered as the answer"


def _last_stated(text: str, options: Mapping[str, str]) -> str | None:
    """What the last 'the answer is', 'I choose' and the like states, None without a letter."""
    for place in reversed([found.end() for found in _STATED.finditer(text)]):
        marks = _LEADING_MARKS.match(text, place)
        begin = marks.end() if marks else place
        named = _NAMED.match(text, begin)
        begin = named.end() if named else begin
        if _leading_letters(text, options, begin)[0]:
            return text[begin:]
    return None


_DENIED = re.compile(r"[\s)*_]*(?:is|was|are)\s+(?:wrong|incorrect|false|not\b)", re.IGNORECASE)


def _stated_options(text: str, options: Mapping[str, str]) -> list[str]:
    """The one option whose text a sentence states, none where it mentions another one too."""
    texts = list(options.values())
    objections = {
        letter: objection(text, option, ignore_case=True)
        for letter, option in options.items()
        if option
    }
    stated = [letter for letter, problem in objections.items() if problem is None]
    others = [problem for problem in objections.values() if problem not in (None, UNMENTIONED)]
    return stated if len(texts) == len(objections) and not others else []


def _leading_letters(
    text: str, options: Mapping[str, str], at: int = 0
) -> tuple[frozenset[str], int]:
    """The letters that stand at a place in a text, and their end."""
    letters: list[str] = []
    while at < len(text):
        found = _letter(text, at, options, first=not letters)
        if found is None:
            break
        letter, at = found
        letters.append(letter)
        joint = _JOIN.match(text, at)
        if joint is None or _letter(text, joint.end(), options, first=False) is None:
            break
        at = joint.end()
    return frozenset(letters), at


def _letter(
    text: str, at: int, options: Mapping[str, str], *, first: bool
) -> tuple[str, int] | None:
    """One letter with its brackets; as one of several it must not be an English word in prose."""
    begin = at
    while at < len(text) and text[at] in "([{*_`$\"'":
        at += 1
    letter = next((known for known in options if text.startswith(known, at)), None)
    if (
        letter is None
        and text[at : at + 1].upper() in options
        and (
            not text[at + 1 : at + 2].isalnum()
            and (at > begin or text[at + 1 : at + 2] in (")", ""))
        )
    ):
        letter = text[at].upper()
        end = at + 1
    elif letter is None:
        return None
    else:
        end = at + len(letter)
    if text[end : end + 1].isalnum() or text[end : end + 1] == "'":
        return None
    closed = end
    while closed < len(text) and text[closed] in ")]}*_`$\"'.":
        closed += 1
    visible = _VISIBLE.search(text, closed)
    following, place = (visible[0], visible.start()) if visible else ("", closed)
    if letter in "AI" and at == begin and closed == end and following.isalpha():
        prose = _PROSE.match(text, place) or _AND_OR.match(text, place)
        if not prose:
            return None
    if not first and closed == end and following.islower() and letter in "AI":
        return None
    return letter, closed


def _with_text(
    letters: frozenset[str], rest: str, options: Mapping[str, str]
) -> frozenset[str] | str:
    """Letters with what is said after them, unless that is the text of another option."""
    rest = rest.strip(_MARKS + "()-—")
    if rest and len(letters) == 1:
        named = [letter for letter, option in options.items() if option and _same(rest, option)]
        if named and not letters & frozenset(named):
            return "the letter and the option's text contradict each other"
    return letters


def _same(text: str, option: str) -> bool:
    return plain_words(text.strip("()")) == plain_words(option)
