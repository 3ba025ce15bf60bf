"""`show`: a run's grid, a task's attempts, one attempt's full transcript. Only reads.

Whatever models, tasks and providers wrote is printed as plain text.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from labelkit.errors import UsageError
from labelkit.records import NONCE_PLACEHOLDER, Abstention, Attempt, Score
from labelkit.report.grid import GLYPHS, LEGEND, NOT_RUN, id_width, task_row
from labelkit.report.run_view import Drawn, RunView
from labelkit.report.text import money, percent, plain, short, span
from labelkit.spec import nearest

Only = Literal["failed", "errors", "passed"]

_STATES = {"failed": "failed", "errors": "unscored", "passed": "passed"}
_WIDTH = 72
MAX_KNOWN_IDS = 10_000
"""Ids that a misspelt one is compared with."""


def grid(view: RunView, only: Only | None = None) -> Iterator[str]:
    """One line a task, in task order; with `only`, the tasks that have such an attempt."""
    first = list(itertools.islice(_wanted(view, only), 1000))
    if not first:
        yield "no task was drawn yet" if only is None else f"no attempt is {_STATES[only]}"
        return
    width = id_width(line["id"] for line in first)
    k = max(len(line["outcomes"]) + line["n_not_run"] for line in first)
    lines = itertools.chain(first, itertools.islice(_wanted(view, only), 1000, None))
    for line in lines:
        yield task_row(line, width, k)
    yield LEGEND
    if not view.finished:
        yield "from the ledger: the run is under way, or was stopped before its files were written"
    yield f"one task: labelkit show {shlex.quote(str(view.directory))} TASK"


def _wanted(view: RunView, only: Only | None) -> Iterator[dict[str, Any]]:
    for line in view.lines():
        if only is None or any(each["state"] == _STATES[only] for each in line["outcomes"]):
            yield line


def task(view: RunView, task_id: str, only: Only | None = None) -> Iterator[str]:
    """A task's prompt and attempts, one line each. Raises UsageError for an unknown task."""
    drawn = _drawn(view, task_id)
    yield f"task {plain(task_id)}"
    yield from _gold(view, task_id)
    yield from _sent(drawn[0])
    yield ""
    candidates = [each for each in drawn if each.key.stage == "candidate"]
    for each in candidates:
        if only is None or _state(each) == _STATES[only]:
            yield _attempt_line(each)
    others = len(drawn) - len(candidates)
    if others:
        yield f"and {others} draws of other stages (judges, prefixes)"
    where = shlex.quote(str(view.directory))
    yield f"one attempt: labelkit show {where} {shlex.quote(plain(task_id))} N"


def transcript(view: RunView, task_id: str, sample_index: int) -> Iterator[str]:
    """All that is known of one attempt: messages, reasoning, reply, verdict, provenance."""
    drawn = _drawn(view, task_id)
    candidates = {each.key.sample_index: each for each in drawn if each.key.stage == "candidate"}
    found = candidates.get(sample_index)
    if found is None:
        known = ", ".join(str(index) for index in sorted(candidates)[:20])
        raise UsageError(
            f"task {task_id}: has no sample {sample_index}", hint=f"it has {known or 'none'}"
        )
    yield f"task {plain(task_id)} · sample {sample_index} · {_verdict_in_short(found)}"
    yield from _sent(found)
    yield from _received(found)
    yield from _verdict(found)
    yield from _gold(view, task_id)
    yield from _provenance(view, found)


def _drawn(view: RunView, task_id: str) -> list[Drawn]:
    found = view.drawn(task_id)
    if not found:
        where = shlex.quote(str(view.directory))
        ids = [line["id"] for line in itertools.islice(view.lines(), MAX_KNOWN_IDS)]
        begun = (each for each in ids if task_id and each.startswith(task_id))
        guess = next(begun, None) or nearest(task_id, ids)
        raise UsageError(
            f"{view.directory}: holds no draw of a task {task_id!r}",
            hint=f"did you mean {guess}?" if guess else f"`labelkit show {where}` lists the tasks",
        )
    return found


def _state(drawn: Drawn) -> str | None:
    return None if drawn.attempt is None else drawn.attempt.state


def _attempt_line(drawn: Drawn) -> str:
    glyph = NOT_RUN if drawn.attempt is None else GLYPHS[drawn.attempt.state]
    reply = drawn.sampled.reply
    text = "" if reply is None else _end(reply.text.strip())
    return f"{drawn.key.sample_index:>4} {glyph} {_verdict_in_short(drawn)}  {text}".rstrip()


def _end(text: str) -> str:
    """The last words of a reply, where answers stand."""
    if len(text) <= _WIDTH:
        return plain(text)
    return "…" + plain(text[-_WIDTH:])


def _verdict_in_short(drawn: Drawn) -> str:
    attempt = drawn.attempt
    if attempt is None:
        return "not scored yet"
    if attempt.stop_reason == "completed":
        said: str = attempt.state
    else:
        said = f"{attempt.state}: {attempt.stop_reason}"
    verdict = attempt.score or attempt.abstention
    if verdict is not None and verdict.answer is not None:
        said += f" · answer {short(verdict.answer, 40)!r}"
    if attempt.score is not None and attempt.score.value not in (0.0, 1.0):
        said += f" · value {attempt.score.value:.3g}"
    return said


def _sent(drawn: Drawn) -> Iterator[str]:
    """The request as it went out, the nonce of a fence filled in."""
    request = drawn.request
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in request.parameters.items())
    revision = f" revision {request.revision}" if request.revision else ""
    yield _rule(f"request · {plain(request.model)}{plain(revision)} {plain(settings)}".rstrip())
    nonce = drawn.sampled.provenance.get("nonce")
    fill: Callable[[str], str] = (
        (lambda text: text.replace(NONCE_PLACEHOLDER, str(nonce))) if nonce else (lambda text: text)
    )
    if request.text is not None:
        yield plain(fill(request.text), lines=True)
    for message in request.messages:
        yield f"[{plain(str(message.get('role')))}]"
        yield plain(fill(_content(message)), lines=True)
    if request.response_schema is not None:
        yield f"[response schema] {plain(json.dumps(request.response_schema, ensure_ascii=False))}"
    if request.tools:
        names = [str(_at(tool, "function", "name")) for tool in request.tools]
        yield f"[tools] {plain(', '.join(names))}"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    shown = [
        part["text"]
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else _json(part)
        for part in parts
        if part is not None
    ]
    extra = {name: value for name, value in message.items() if name not in ("role", "content")}
    return "\n".join([*shown, *([_json(extra)] if extra else [])])


def _received(drawn: Drawn) -> Iterator[str]:
    reply, failure = drawn.sampled.reply, drawn.sampled.failure
    if failure is not None:
        status = f" {failure.status_code}" if failure.status_code else ""
        yield _rule(f"no reply · {failure.kind} · {plain(failure.error_type)}{status}")
        yield plain(failure.message, lines=True)
        return
    assert reply is not None
    completion = drawn.sampled.completion
    assert completion is not None
    if reply.reasoning:
        yield _rule("reasoning")
        yield plain(reply.reasoning, lines=True)
    usage = completion.usage
    counted = [
        *([f"finish reason {plain(completion.finish_reason)}"] if completion.finish_reason else []),
        *([f"{usage.input_tokens:,} tokens in"] if usage.input_tokens is not None else []),
        *([f"{usage.output_tokens:,} out"] if usage.output_tokens is not None else []),
        *([money(completion.cost_usd)] if completion.cost_usd is not None else []),
    ]
    yield _rule(" · ".join(["reply", *counted]))
    yield _marked(reply.text, drawn.attempt)
    for call in reply.tool_calls:
        yield f"[tool call] {plain(call.name)}({plain(call.arguments, lines=True)})"


def _marked(text: str, attempt: Attempt | None) -> str:
    """The reply with the extracted span between ⟦ and ⟧."""
    verdict = None if attempt is None else attempt.score or attempt.abstention
    if verdict is None or verdict.span is None:
        return plain(text, lines=True)
    start, end = verdict.span
    pieces = (plain(piece, lines=True) for piece in (text[:start], text[start:end], text[end:]))
    before, answer, after = pieces
    return f"{before}⟦{answer}⟧{after}"


def _verdict(drawn: Drawn) -> Iterator[str]:
    attempt = drawn.attempt
    yield _rule(f"verdict · {_verdict_in_short(drawn)}")
    if attempt is None:
        return
    verdict: Score | Abstention | None = attempt.score or attempt.abstention
    if attempt.score is not None:
        yield f"value: {attempt.score.value:g}"
    if verdict is not None and verdict.rule:
        yield f"rule: {plain(verdict.rule)}"
    if attempt.reason:
        yield f"reason: {plain(attempt.reason, lines=True)}"
    if verdict is not None and verdict.detail:
        yield f"detail: {plain(_json(verdict.detail))}"


def _gold(view: RunView, task_id: str) -> Iterator[str]:
    known, gold = view.gold(task_id)
    if known:
        yield f"gold: {plain(gold if isinstance(gold, str) else _json(gold), lines=True)}"
    for line in view.lines() if view.finished else ():
        if line["id"] == task_id:
            rate = f"{line['n_passed']}/{line['n_scored']} {percent(line['pass_rate'])}"
            yield f"task: {rate} {span(line['pass_rate_interval'])} {line['status']}".rstrip()
            return


def _provenance(view: RunView, drawn: Drawn) -> Iterator[str]:
    """Where a draw came from; it names its run only where that is another than this one."""
    yield _rule("provenance")
    completion = drawn.sampled.completion
    if completion is not None:
        for name in ("model_served", "response_id"):
            value = getattr(completion, name)
            if value is not None:
                yield f"{name}: {plain(value)}"
    told = {"run_id": view.identity["run_id"], **drawn.sampled.provenance}
    for name, value in sorted(told.items()):
        if value is not None:
            yield f"{name}: {plain(value if isinstance(value, str) else _json(value))}"
    yield f"request digest: {drawn.key.request}"


def _rule(title: str) -> str:
    return f"── {title} ".ljust(_WIDTH, "─")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
