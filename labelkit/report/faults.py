"""`errors`: what kept attempts from being scored, grouped by class, each with what to do about it.

Memory is bounded by the number of classes, whose number is bounded too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from labelkit.records import Attempt
from labelkit.report.run_view import Drawn, RunView
from labelkit.report.text import number, plain, short

MAX_CLASSES = 100
_EXAMPLES = 3
# The innermost of the exception types that a scorer's error begins with.
_EXCEPTIONS = re.compile(r"(?:\w+(?:Error|Exception): )*(\w+(?:Error|Exception|Exit|Interrupt))")
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|\d+")

_AGAIN = "the same command with --retry-errors draws them again"
_RESUME = "run the same command again: these are drawn again without asking"
_BY_KIND = {
    "fatal": f"check the key, the model's name and the quota; {_RESUME}",
    "row": f"the provider refuses these requests: mend the task or the parameters; {_AGAIN}",
    "transient": f"the tries were used up; {_AGAIN}",
    "timeout": f"raise sampler.timeout_s, or lower max_tokens; {_AGAIN}",
    "content_filter": "the provider filters these prompts or replies: reword or drop the tasks",
    "unreadable": f"something between here and the model breaks its answers; {_AGAIN}",
    "cancelled": _RESUME,
}
_BY_REASON = {
    "content_filter": _BY_KIND["content_filter"],
    "truncated": "a reply is never redrawn: raise sampler.max_tokens and start anew with --fresh",
    "invalid_output": "a reply is never redrawn: mend the prompt or the schema, start with --fresh",
    "scorer_error": "mend the scorer; the same command with --retry-errors scores them again",
    "abstained": "look at one with show; `labelkit rescore` tries another scorer without a call",
}
_NOT_SCORED = "run the same command again: the replies are there, the scores are made then"


@dataclass
class FaultClass:
    """Attempts that failed alike."""

    label: str
    advice: str
    example: str
    count: int = 0
    where: list[tuple[str, int]] = field(default_factory=list)


def fault_classes(view: RunView) -> list[FaultClass]:
    """The classes, largest first."""
    classes: dict[str, FaultClass] = {}
    finished = view.finished
    for line in view.lines():
        if finished and not line["n_unscored"]:
            continue
        for drawn in view.drawn(line["id"]):
            found = _class_of(drawn)
            if found is None:
                continue
            if found.label not in classes and len(classes) >= MAX_CLASSES:
                found = FaultClass("other", "look at one with show", found.example)
            known = classes.setdefault(found.label, found)
            known.count += 1
            if len(known.where) < _EXAMPLES:
                known.where.append((drawn.key.task_id, drawn.key.sample_index))
    return sorted(classes.values(), key=lambda each: (-each.count, each.label))


def _class_of(drawn: Drawn) -> FaultClass | None:
    """The class of a failed call or an unscored candidate; None for what is no fault."""
    failure, attempt = drawn.sampled.failure, drawn.attempt
    stage = drawn.key.stage.partition("/")[0]
    at = "" if stage == "candidate" else f"{stage} "
    if failure is not None:
        status = f" {failure.status_code}" if failure.status_code else ""
        label = f"{at}{failure.stop_reason} · {failure.error_type}{status} ({failure.kind})"
        return FaultClass(label, _BY_KIND[failure.kind], failure.message)
    if attempt is None:
        if stage != "candidate":
            return None
        return FaultClass("not scored yet", _NOT_SCORED, "the run stopped before the scorer ran")
    if attempt.state != "unscored":
        return None
    return FaultClass(
        _unscored_label(attempt), _BY_REASON[attempt.stop_reason], str(attempt.reason)
    )


def _unscored_label(attempt: Attempt) -> str:
    """The stop reason and what is alike in the reasons of such attempts."""
    reason = attempt.reason or ""
    if attempt.stop_reason == "scorer_error":
        names = _EXCEPTIONS.match(reason.removeprefix("scorer: "))
        return f"scorer_error · {names[1] if names else 'unknown'}"
    if attempt.stop_reason == "abstained":
        return f"abstained · {_VARIABLE.sub('…', reason)[:80]}"
    return attempt.stop_reason


def faults_text(view: RunView) -> Iterator[str]:
    """The report, line by line."""
    classes = fault_classes(view)
    where = shlex.quote(str(view.directory))
    for each in classes:
        yield f"{each.count:,} × {plain(each.label)}"
        yield f"    e.g. {short(each.example, 300)}"
        samples = ", ".join(f"{plain(task_id)} sample {index}" for task_id, index in each.where)
        yield f"    at {samples}{', …' if each.count > len(each.where) else ''}"
        yield f"    do: {each.advice}"
    lost = view.totals.unanswered
    if lost:
        yield (
            f"{number(lost, 'call')} sent and never answered, because the run was killed or is "
            "still going; counted as spent"
        )
    summary = view.summary if view.finished else None
    not_run = summary["draws"]["not_run_reasons"] if summary else {}
    for reason, count in sorted(not_run.items()):
        why = (summary or {}).get("stopped_early") if reason == "not_run" else reason
        yield f"{number(count, 'draw')} not run{f': {plain(why)}' if why else ''}"
    if summary and summary["stopped_early"]:
        yield plain(summary["incomplete"][0])
    if classes:
        task_id, index = classes[0].where[0]
        yield f"next: labelkit show {where} {shlex.quote(plain(task_id))} {index}"
    elif not lost and not not_run:
        yield "no errors: every attempt was scored"
