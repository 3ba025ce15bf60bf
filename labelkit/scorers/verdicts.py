"""What scorers of extracted answers share: their form, and their verdicts."""

from __future__ import annotations

from typing import TypedDict

from pydantic import JsonValue

from labelkit.records import Abstention, Score
from labelkit.scorers import ScorerSettings
from labelkit.scorers.extract import Candidate, Extraction

MAX_SHOWN = 2_000


class AnswerScorer:
    """A scorer that holds nothing open and reads nothing of a task but its gold."""

    def __init__(self, settings: ScorerSettings) -> None:
        self.fingerprint: dict[str, JsonValue] = settings.identity
        self.reads: frozenset[str] = frozenset()

    async def close(self) -> None:
        return None


class _Told(TypedDict, total=False):
    answer: str
    span: tuple[int, int] | None
    rule: str


def unanswered(found: Extraction) -> Score:
    """Failed: the reply offers no answer."""
    return Score(value=0.0, passed=False, reason=found.why, no_answer=True)


def passed(found: Extraction, decided: str) -> Score:
    """Right, with the rule that decided."""
    return Score(value=1.0, passed=True, **_told(found.candidate, decided))


def failed(
    found: Extraction, reason: str, *, decided: str | None = None, no_answer: bool = False
) -> Score:
    """Wrong; `no_answer` where the answer is none: a hedge, or nothing that can be read."""
    told = _told(found.candidate, decided)
    return Score(value=0.0, passed=False, reason=reason, no_answer=no_answer, **told)


def undecided(found: Extraction, reason: str) -> Abstention:
    """The comparison cannot be decided."""
    return Abstention(reason=reason, **_told(found.candidate, None))


def _told(candidate: Candidate | None, decided: str | None) -> _Told:
    if candidate is None:
        return {}
    text = candidate.text
    return {
        "answer": text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…",
        "span": candidate.span,
        "rule": f"{candidate.rule} · {decided}" if decided else candidate.rule,
    }
