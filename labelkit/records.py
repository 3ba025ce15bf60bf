"""labelkit's words as frozen records.

Records are data that crosses modules; they are built at the edges and trusted inside. Nothing here
does work, reads a file or knows a provider.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    dataclass_transform,
)

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from labelkit.codec import canonical
from labelkit.errors import FailureKind

if TYPE_CHECKING:
    Json = JsonValue
else:
    # Checked at the edges that read it; checking it again in every record would cost more than the
    # rest of a draw.
    Json = Any

T = TypeVar("T")

Message = dict[str, Json]
"""One chat message as the OpenAI protocol has it: `role`, `content`, and what else it carries."""

StopReason = Literal[
    "cancelled",
    "timeout",
    "provider_error",
    "content_filter",
    "truncated",
    "invalid_output",
    "no_answer",
    "scorer_error",
    "abstained",
    "completed",
]
"""How an attempt ended: the first that holds, in this order."""

State = Literal["passed", "failed", "unscored"]

Status = Literal["kept", "dropped", "undecided", "not_run"]
"""What became of a task."""


class Record(BaseModel):
    """Immutable data with no room for unknown fields; floats are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def carrier(cls: type[T]) -> type[T]:
    """What never leaves the process: built from records, trusted, never read or written. Frozen to
    the type checker; at run time a check would cost more than the object."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


class Task(Record):
    """One input. `gold` None means that there is none.

    `row` is the source row as read (foreign columns included) and `line` its place in the file,
    from 1; both are for lookups and messages, never part of what a task is.
    """

    id: str = Field(min_length=1)
    prompt: str | tuple[Message, ...]
    gold: Json = None
    metadata: dict[str, Json] = Field(default_factory=dict)
    row: dict[str, Json] | None = Field(default=None, exclude=True, repr=False)
    line: int | None = Field(default=None, exclude=True, repr=False)


class Request(Record):
    """One logical model call, everything that shapes the reply and nothing else.

    `messages` for the chat API, `text` for the completions API (the other is empty or None).
    `parameters` holds only what was set (temperature, max_tokens, seed, extra_body, …).
    A `nonce` placeholder inside messages is hashed as it stands and replaced when sent.
    """

    model: str
    revision: str | None = None
    api: Literal["chat", "completions"] = "chat"
    messages: tuple[Message, ...] = ()
    text: str | None = None
    parameters: dict[str, Json] = Field(default_factory=dict)
    response_schema: dict[str, Json] | None = None
    tools: tuple[dict[str, Json], ...] = ()

    @cached_property
    def digest(self) -> str:
        """sha256 hex over the canonical JSON of all fields."""
        return hashlib.sha256(canonical(self.model_dump(mode="json"))).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Request:
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("digest", None)  # pydantic would let the copy keep it
        return copied


NONCE_PLACEHOLDER = "\ue000nonce\ue000"
"""Stands in a request's messages for a fence's random nonce, chosen anew for every draw."""


@carrier
class DrawKey:
    """What tells one draw from another, in the ledger and everywhere else."""

    task_id: str
    stage: str
    request: str
    sample_index: int


@carrier
class Call:
    """A draw on its way to a sampler: the request with what is decided only when it is sent.

    `seed` is the derived seed of the draw, None where none is to be sent. `messages` and `text`
    are the request's with the nonce filled in. `endpoint` says which replica of the sampler's
    endpoints carries it.
    """

    request: Request
    task: Task
    key: DrawKey
    messages: tuple[Message, ...]
    text: str | None
    seed: int | None = None
    endpoint: int = 0


class Usage(Record):
    """Tokens as the provider counted them; None for what it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class ToolCall(Record):
    """A call the model asked for; `arguments` is the text it wrote, parsed by whoever verifies."""

    name: str
    arguments: str
    id: str | None = None


class Completion(Record):
    """A reply as received, before labelkit reads anything into it.

    `text` keeps thinking tags where the provider left them in; `reasoning` is the provider's own
    field. `finish_reason` is `stop`, `length`, `tool_calls`, `content_filter` or the provider's
    word. `cost_usd` None: unknown. `logprobs` as the provider gave them.
    """

    text: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    model_served: str | None = None
    response_id: str | None = None
    logprobs: JsonValue = None

    def as_json(self) -> dict[str, Json]:
        """All fields that are set; `Completion.model_validate` reads them back."""
        usage = _set(self.usage)
        fields: dict[str, Json] = {"text": self.text}
        for name in ("reasoning", "finish_reason", "cost_usd", "model_served", "response_id"):
            value = getattr(self, name)
            if value is not None:
                fields[name] = value
        if self.tool_calls:
            fields["tool_calls"] = [_set(call) for call in self.tool_calls]
        if usage:
            fields["usage"] = usage
        if self.logprobs is not None:
            fields["logprobs"] = self.logprobs
        return fields

    @property
    def digest(self) -> str:
        """sha256 hex over what a scorer can see: text, reasoning, tool calls, finish reason."""
        calls: list[JsonValue] = [[each.name, each.arguments, each.id] for each in self.tool_calls]
        visible = [self.text, self.reasoning, calls, self.finish_reason, self.logprobs]
        return hashlib.sha256(canonical(visible)).hexdigest()


def _set(record: Record) -> dict[str, Json]:
    return {name: value for name, value in vars(record).items() if value is not None}


class Failure(Record):
    """A draw that brought no reply. `tries` counts the calls made.

    `owed`: the next run of the command tries it again without being asked (cancelled, fatal-class
    and breaker-time failures); otherwise only `--retry-errors` does.
    """

    stop_reason: Literal["cancelled", "timeout", "provider_error", "content_filter"]
    kind: FailureKind | Literal["cancelled"]
    error_type: str
    message: str
    status_code: int | None = None
    tries: int = 1
    owed: bool = False


class Reply(Record):
    """A completion as labelkit reads it; a pure function of request and completion.

    `text` is the answer with thinking taken out, `reasoning` the thinking; `text` is empty where a
    think block never closed. `parsed` is the object of a response schema, `invalid` why there is
    none; with `unchecked`, nobody knows whether the reply keeps to the schema. `cut`: the reply
    ended at its token limit. `index` is the draw's sample index and `stage` its stage.
    """

    text: str
    reasoning: str | None = None
    parsed: Json = None
    invalid: str | None = None
    unchecked: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    cut: bool = False
    stage: str = "candidate"
    index: int = 0
    logprobs: Json = None


class _Verdict(Record):
    def as_json(self) -> dict[str, Json]:
        """The fields that do not hold their default; the class's `model_validate` reads them."""
        fields: Any = vars(self)
        if fields["detail"]:
            return self.model_dump(mode="json", exclude_defaults=True)
        kept = {name: value for name, value in fields.items() if value is not None}
        del kept["detail"]
        if kept.get("no_answer") is False:
            del kept["no_answer"]
        return kept


class Score(_Verdict):
    """A scorer's verdict.

    value: in [0, 1]. `answer` is the extracted text that was judged, `span` its half-open character
    range in the reply's text, `rule` how it was found and what decided (`boxed:last · integer`).
    `no_answer`: the reply offers no answer, or hedges; always with `passed` False.
    """

    value: float = Field(ge=0.0, le=1.0)
    passed: bool
    reason: str | None = None
    answer: str | None = None
    span: tuple[int, int] | None = None
    rule: str | None = None
    no_answer: bool = False
    detail: dict[str, Json] = Field(default_factory=dict)


class Abstention(_Verdict):
    """A comparison that cannot be decided (time, size, unknown form, no quorum): unscored."""

    reason: str
    answer: str | None = None
    span: tuple[int, int] | None = None
    rule: str | None = None
    detail: dict[str, Json] = Field(default_factory=dict)


Verdict = Score | Abstention


@carrier
class Sampled:
    """A draw as far as the model took it: a completion or a failure, exactly one of them.

    `provenance` holds what differs between equal runs (times, run id, response id, tries).
    """

    key: DrawKey
    completion: Completion | None = None
    failure: Failure | None = None
    reply: Reply | None = None
    provenance: dict[str, Json] = field(default_factory=dict)


@carrier
class Attempt:
    """One draw with its outcome. `reason` says in words why it did not complete or pass.

    `score` is None exactly where the attempt is unscored.
    """

    sampled: Sampled
    stop_reason: StopReason
    score: Score | None = None
    abstention: Abstention | None = None
    reason: str | None = None

    @property
    def key(self) -> DrawKey:
        return self.sampled.key

    @property
    def sample_index(self) -> int:
        return self.sampled.key.sample_index

    @property
    def state(self) -> State:
        if self.score is None:
            return "unscored"
        return "passed" if self.score.passed else "failed"


class NotRun(Record):
    """A draw that was asked for and not made.

    reason: `unavailable` (recorded replies hold no such sample) or `not_drawn` (`rescore` found no
    such draw, and makes none; one may still come where the run goes on), which do not make a run
    incomplete; or why the run stopped admitting (`budget`, `breaker`, `interrupted`, `fatal`,
    `pilot`); or `not_run` where a ledger is read back and the draw is not in it, `another_model`
    where the only replies in it are by another model than the run's.
    """

    key: DrawKey
    reason: str


class Dropped(Record):
    """One line of dropped.jsonl: a task (`sample_index` None) or a sample that gave no row."""

    id: str
    sample_index: int | None = None
    reason: str
    detail: str | None = None


@carrier
class Row:
    """A kept row: the recipe's own keys in order, the request and the attempts behind it."""

    fields: dict[str, Json]
    request: Request
    attempts: tuple[Attempt, ...]
    provenance: dict[str, Json] = field(default_factory=dict)


class Outcome(Record):
    """What a recipe makes of one task. Conservation is checked over these.

    status: `kept` (rows follow) · `dropped` with `reason` · `undecided` with `reason` · `not_run`.
    `planned` draws are `attempts` (the candidate draws in sample order), `not_run` and `not_needed`
    (those that a decision made superfluous). `candidates` counts the rows that could have been
    kept: `rows` and `dropped_rows`. `line` goes into tasks.jsonl, `detail` to `Recipe.summarise`.
    """

    task_id: str
    status: Status
    reason: str | None = None
    rows: tuple[Row, ...] = ()
    dropped_rows: tuple[Dropped, ...] = ()
    candidates: int = 0
    planned: int = 0
    attempts: tuple[Attempt, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    not_needed: int = 0
    stopped_early: bool = False
    line: dict[str, Json] = Field(default_factory=dict)
    detail: dict[str, Json] = Field(default_factory=dict)
