"""The words around an answer: cues that state it, hedges that withhold it, retractions.

Knows phrases, not numbers or formulas. Every pattern is bounded, and every scan passes once over
the text. Functions that take `shown` want the lower-case view of a reply (see `folding.view`).
"""

from __future__ import annotations

import re

_CUE = re.compile(
    r"answers?(?:\s(?:to|for|of)\s[^\n.:?!]{1,60}?)?[\s*_`\"')\]}]{0,20}?"
    r"(?::|=|->|→|\s(?:is|are|was|equals|comes\s(?:out\s)?(?:to|as)|"
    r"(?:would|should|must|will|has\sto)\s(?:then\s)?be)\b)"
)
_HEADING = re.compile(r"[\W_]{0,12}(?:(?:the|my)\s)?(?:final\s)?answer[\W_]{0,6}")
_FOREIGN = (
    "antwort lösung ergebnis réponse respuesta risposta resposta ответ antwoord svar cevap "
    "答案 答え 答 정답 解答 故选 应选 選"
)
_FOREIGN_WORDS = _FOREIGN.split()
_ASCII_WORDS = [word for word in _FOREIGN_WORDS if word.isascii()]
_FOREIGN_CUE = re.compile(
    rf"(?:{'|'.join(_FOREIGN_WORDS)})[\s*_]{{0,4}}"
    r"(?::|=|ist\b|lautet\b|est\b|es\b|è\b|é\b|är\b|是|为|為|は)|(?:故选|应选|選)"
)
_MAX_CUES = 50
_MAX_LOOKED_AT = 500
_CONDITIONAL = re.compile(
    r"\b(?:if|whether|suppose|supposing|assume|assuming|unless|until|when|would\sbe)\b[^.!?\n;,]*$"
)
_LEAD = re.compile(
    r"(?:[\s:=*_`~>#}]|\\[,;!: ]|→|(?:therefore|thus|hence|then|indeed|simply|just|exactly"
    r"|precisely|clearly|actually|obviously|definitely|certainly)(?=[\s,]),?)*"
)
_DISPLAY = {"$$": "$$", "\\[": "\\]"}
_STOP = re.compile(
    r"\n|(?:(?<!\.)(?<!\brs)(?<!\bno)(?<!\bvs)[.]|[?;])(?=[\s*_\"')\]]|$|[^\x00-\x7f])|!(?!\s{0,4}[=+\-*/^\d\\!)])"
)
_SENTENCE = re.compile(r"([.!?])[^.!?]*$")
_CLAUSE = re.compile(r"([.!?;,])[^.!?;,]*$")
_EDGE = " \t\n.,;:!*_`~\"'"
_ELLIPSIS = re.compile(r"\d\.\.\.$")
_NOT = re.compile(r"(?:definitely\s|certainly\s|clearly\s)?not\b")
_BUT = re.compile(
    r"(?:\b(?:but|rather|instead)\b|\b(?:it|that)(?:\sis|'s|\smust\sbe|\sshould\sbe)\b)"
    r"(?:\s(?:it|that)(?:\sis|'s))?(?!\snot\b)"
)
_TAKEN_BACK = re.compile(
    r"\b(?:that|this|it|which|answer|value|result)(?:\s(?:is|was|cannot\sbe|can't\sbe)|'s|\sisn't)"
    r"\s(?:not\s)?(?:wrong|incorrect|a\smistake|an\serror|(?<=not\s)(?:right|correct))\b"
    r"|\bscratch\sthat\b|\boops\b|\bcorrection\s?:|\bi\smade\s(?:a|an)\s(?:\w+\s)?(?:mistake|error)"
    r"|\bactually,?\s(?:no\b|it\s(?:is|should)|it's|the\sanswer|that)"
    r"|\bno,\s(?:it\s(?:is|should)|it's|the\sanswer|that)"
    r"|\b(?:it|that|which|answer)\sshould\s(?:actually\s|really\s|instead\s)?(?:be|have\sbeen)\s"
    r"(?=[$\\\d(\-])"
)
_WRONG_AT_ONCE = re.compile(
    r"[\s$.,*_)\]]{0,6}(?:is|was|looks|seems)\s(?:clearly\s|obviously\s)?"
    r"(?:wrong|incorrect|not\s(?:right|correct|it\b|the\sanswer))"
)
_RETRACTION = re.compile(
    r"\b(?:no|wait|hmm|actually|wrong|incorrect|mistaken?|mistakes|error|errors|oops|sorry|instead"
    r"|rather|correct(?:ed|ing|ion)|revis(?:e|ed|ing|ion)|misse[sd]|overlooked|forgot|fix(?:ed|ing)?"
    r"|re-?(?:check|consider|examin|evaluat|calculat|comput|think|count|do\b|did\b|doing)\w*"
    r"|second\s(?:thought|look)|should\s(?:be|have)|double.?check\w*|try\sagain|does(?:n't|\snot)"
    r"|not\s(?:right|correct|quite|valid|possible|it|what|the))\b"
)
_FINAL = re.compile(r"\bfinal(?:\W+\w+){0,2}\W+answer\b|\bfinal(?:ly)?\b[^\n.]{0,40}$")
_OR_NEXT = re.compile(
    r"[\s$.,*_)\]]{0,6}(?:and/)?or\b(?!\s(?:equivalently|in\sother|simply|just|rather|about|approx))"
)
_UNSURE = r"(?:either|maybe|perhaps|possibly|might\sbe|could\sbe|can\sbe|not\ssure|unsure)"
_UNSURE_BEFORE = re.compile(rf"\b{_UNSURE}\b[^.!?\n]{{0,40}}$")
_HEDGE = re.compile(rf"\b(?:or|and/or|{_UNSURE[3:-1]})\b")
_WORD = re.compile(r"[^\W\d_]{2,}")
_CUE_WORDS = re.compile(r"\b(?:the|my|so|final|correct|answers?|antwort)\b")


def trimmed(shown: str, begin: int, end: int) -> tuple[int, int]:
    """The range without blanks, markup, quotes and stops at its edges."""
    while begin < end and shown[begin] in _EDGE and not _decimal_point(shown, begin):
        begin += 1
    while end > begin and shown[end - 1] in _EDGE and not _ellipsis(shown, begin, end):
        end -= 1
    return begin, end


def _ellipsis(shown: str, begin: int, end: int) -> bool:
    """Whether the range ends in a digit and three dots, with or without a line end behind them."""
    return _ELLIPSIS.search(shown, max(begin, end - 5), end) is not None


def _decimal_point(shown: str, at: int) -> bool:
    return shown[at] == "." and shown[at + 1 : at + 2].isdigit()


def statement(shown: str, start: int, limit: int | None = None) -> tuple[int, int]:
    """What a cue that ends at `start` states: to the end of its sentence or display formula.

    Starts on a later line where the cue's own line says nothing. Empty where begin == end.
    """
    limit = len(shown) if limit is None else limit
    lead = _LEAD.match(shown, start, limit)
    begin = lead.end() if lead else start
    closing = _DISPLAY.get(shown[begin : begin + 2])
    if closing is not None:
        close = shown.find(closing, begin + 2, limit)
        return (begin, close + 2) if close >= 0 else (begin, limit)
    stop = _STOP.search(shown, begin, limit)
    return trimmed(shown, begin, stop.start() if stop else limit)


def declared(shown: str, start: int = 0) -> list[tuple[int, int]]:
    """What each 'the answer is …' from `start` on states, in order; empty ranges where nothing.

    Questions and conditions state nothing; 'not A but B' states B.
    """
    found: list[tuple[int, int]] = []
    cues = _cues(shown, start)
    for place, (opens, closes) in enumerate(cues):
        limit = cues[place + 1][0] if place + 1 < len(cues) else len(shown)
        if _CONDITIONAL.search(shown, _after_last(_CLAUSE, shown, opens - 60, opens), opens):
            continue
        begin, end = statement(shown, closes, limit)
        if shown[end : end + 1] == "?" or (end > begin and shown[end : end + 2] == "*?"):
            continue
        if _NOT.match(shown, begin, end):
            begin, end = _affirmed(shown, begin, limit)
        found.append((begin, end))
    return found


def _cues(shown: str, start: int) -> list[tuple[int, int]]:
    """The ranges of the last cues; the literal word is looked for first, which is fast."""
    found: list[tuple[int, int]] = []
    at = len(shown)
    for _ in range(_MAX_LOOKED_AT):
        at = shown.rfind("answer", start, at)
        if at < 0 or len(found) == _MAX_CUES:
            break
        cue = _CUE.match(shown, at) if not shown[at - 1 : at].isalpha() else None
        end = cue.end() if cue else _heading(shown, at)
        if end is not None:
            found.append((at, end))
    for word in _ASCII_WORDS if shown.isascii() else _FOREIGN_WORDS:
        if word in shown:
            found += [cue.span() for cue in _FOREIGN_CUE.finditer(shown, start)]
            break
    return sorted(found)[-_MAX_CUES:]


def _heading(shown: str, at: int) -> int | None:
    """The end of a line that holds nothing but 'Final answer', None where there is more."""
    begin = shown.rfind("\n", max(0, at - 40), at) + 1
    end = shown.find("\n", at, at + 40)
    if begin == 0 and at > 40:
        return None
    return end if end >= 0 and _HEADING.fullmatch(shown, begin, end) else None


def _affirmed(shown: str, begin: int, limit: int) -> tuple[int, int]:
    """What follows the 'but' of a negation, within 200 characters and the same line."""
    line_end = shown.find("\n", begin, min(limit, begin + 200))
    but = _BUT.search(shown, begin, line_end if line_end >= 0 else min(limit, begin + 200))
    return statement(shown, but.end(), limit) if but else (begin, begin)


def is_taken_back(shown: str, at: int) -> bool:
    """Whether the text from `at` on says that what stood before is wrong."""
    return bool(_WRONG_AT_ONCE.match(shown, at) or _TAKEN_BACK.search(shown, at))


def is_retraction(between: str) -> bool:
    """Whether the text between two answers takes the first one back."""
    return bool(_RETRACTION.search(between))


def declares_final(between: str) -> bool:
    """Whether the text before an answer calls it the final one."""
    return bool(_FINAL.search(between[-120:]))


def offers_another(shown: str, begin: int, end: int) -> bool:
    """Whether the answer in a range is one of several, or a guess: 'either … or', 'maybe'."""
    sentence = _after_last(_SENTENCE, shown, begin - 80, begin)
    return bool(_OR_NEXT.match(shown, end) or _UNSURE_BEFORE.search(shown, sentence, begin))


def _after_last(stop: re.Pattern[str], shown: str, begin: int, end: int) -> int:
    """Where the text behind the last stop in a range begins."""
    begin = max(0, begin)
    last = stop.search(shown, begin, end)
    return last.end(1) if last else begin


def hedges(answer: str) -> bool:
    """Whether an answer offers more than one, or does not commit itself."""
    return bool(_HEDGE.search(answer.lower()))


def has_words(between: str) -> bool:
    """Whether there is anything but cues and marks between two answers."""
    return bool(_WORD.search(_CUE_WORDS.sub("", between.lower())))
