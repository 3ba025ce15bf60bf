"""What the fake server answers: a pure function of messages, seed and arrival, set by a script.

With a seed the reply depends on messages and seed alone, so a resumed run gets what an
uninterrupted one got; without one, the arrival ordinal among equal calls makes each reply unique.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FaultName = Literal[
    "rate_limit",
    "insufficient_quota",
    "server_error",
    "unavailable",
    "overloaded",
    "conflict",
    "request_timeout",
    "unauthorized",
    "payment_required",
    "forbidden",
    "unknown_model",
    "bad_request",
    "context_length",
    "content_filter",
    "too_large",
    "unprocessable",
    "hang",
    "slow_loris",
    "refuse",
    "cut_body",
    "disconnect",
    "garbage",
    "error_body",
    "no_choices",
    "null_content",
    "surrogates",
    "big",
]

STATUS: dict[str, tuple[int, str, str | None, str]] = {
    "rate_limit": (429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached"),
    "insufficient_quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "server_error": (500, "server_error", None, "The server had an error"),
    "unavailable": (503, "server_error", None, "Service unavailable"),
    "overloaded": (529, "overloaded_error", None, "Overloaded"),
    "conflict": (409, "conflict", None, "Conflict"),
    "request_timeout": (408, "timeout", None, "Request timeout"),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key"),
    "payment_required": (402, "billing_error", None, "Insufficient balance"),
    "forbidden": (403, "permission_error", None, "Forbidden for this project"),
    "unknown_model": (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model does not exist or you do not have access to it.",
    ),
    "bad_request": (400, "invalid_request_error", None, "Invalid value for 'temperature'"),
    "context_length": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 4096 tokens.",
    ),
    "content_filter": (
        400,
        "invalid_request_error",
        "content_filter",
        "The response was filtered due to the prompt triggering content management policy.",
    ),
    "too_large": (413, "invalid_request_error", None, "Request entity too large"),
    "unprocessable": (422, "invalid_request_error", None, "Unprocessable entity"),
}
"""Fault → status, error type, code, message."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Rule(_Strict):
    """When all its conditions hold, a call gets `fault`, or a reply with `change` (Script fields).

    The first rule that holds decides. A rule without conditions always holds.
    nth: numbers of calls on this server, from 1 · after, until: the same as a range, both included
    · share: of the draws, by hash (of the calls, so that another try may succeed, where `per_try`)
    · first_tries: only the first so many arrivals of a draw · contains: text in the last message
    · above_in_flight: more calls than so many are open · times: fires at most so often.
    """

    fault: FaultName | None = None
    change: dict[str, Any] = {}
    nth: list[int] | None = None
    after: int | None = None
    until: int | None = None
    share: float | None = None
    per_try: bool = False
    first_tries: int | None = None
    contains: str | None = None
    above_in_flight: int | None = None
    times: int | None = None
    retry_after: str | None = None
    """Header as sent; `date+N` is the HTTP date N seconds from now."""
    echo: str | None = None
    """Added to an error's message; `{authorization}` is the call's own header."""
    delay_s: float = 1.0
    """Between the bytes of `slow_loris`; how long `hang` keeps silent (then the call is closed)."""


class Ask(_Strict):
    """One call as the script sees it. `ordinal` counts equal calls (messages and seed), from 1."""

    number: int
    ordinal: int
    in_flight: int
    body: dict[str, Any]
    prompt: str
    seed: int | None
    key: str
    """hex sha256 over messages and seed, and the ordinal where there is no seed."""

    def chance(self, salt: str = "") -> float:
        """A number in [0, 1) that depends on `key` and salt alone."""
        digest = hashlib.sha256(f"{salt}:{self.key}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


class Script(_Strict):
    """How calls are answered. `reply` may use `{n}` (arrival ordinal), `{key}` (unique for the
    draw), `{seed}`, `{prompt}` (last message) and `{answer}`.

    `gold` is a regex over the last message with the group `gold` and perhaps `share`; `{answer}`
    is the gold for that share of the draws (else for `right_share`), by hash, and `wrong` else.
    """

    reply: str | Callable[[Ask], str] = "reply {key}"
    gold: str | None = None
    right_share: float = 0.5
    wrong: str = "-1"
    reasoning: str | None = None
    reasoning_field: str = "reasoning_content"
    tool_calls: list[dict[str, str]] = []
    """Each with `name` and `arguments`."""
    finish_reason: str | None = "stop"
    latency_ms: float | tuple[float, float] = 0.0
    usage: dict[str, Any] | Literal["auto", "none"] = "auto"
    """auto: input by `bytes_per_token` and `template_tokens` more, output by words; max_tokens cuts
    the words."""
    bytes_per_token: float = 4
    template_tokens: int = 0
    served_model: str | None = None
    root: str | None = None
    models: list[str] | None = None
    """Where set, other models are unknown (404)."""
    api_key: str | None = None
    """Where set, other bearer tokens are refused (401)."""
    rules: list[Rule] = []
    batch_polls: int = 1
    """How often a batch is looked at until it is done."""
    batch_hold: Literal["upload", "before create", "create", "retrieve", "content"] | None = None
    """Such a call is carried out (or, before it is, kept back), and its answer never comes."""

    def text(self, ask: Ask) -> str:
        """The reply to a call."""
        if callable(self.reply):
            return self.reply(ask)
        text = self.reply
        for name, value in (
            ("n", str(ask.ordinal)),
            ("key", ask.key[:16]),
            ("seed", str(ask.seed)),
            ("prompt", ask.prompt),
        ):
            text = text.replace("{" + name + "}", value)
        if "{answer}" in text:
            text = text.replace("{answer}", self.answer(ask))
        return text

    def answer(self, ask: Ask) -> str:
        """The gold or `wrong`, by the draw's hash."""
        found = re.search(self.gold, ask.prompt) if self.gold else None
        if found is None:
            return self.wrong
        share = found.groupdict().get("share")
        right = ask.chance("right") < (self.right_share if share is None else float(share))
        return found["gold"] if right else self.wrong

    def latency_s(self, ask: Ask) -> float:
        """Seconds before the first byte; a pair is a range, by the draw's hash."""
        if isinstance(self.latency_ms, tuple):
            low, high = self.latency_ms
            return (low + ask.chance("latency") * (high - low)) / 1000
        return self.latency_ms / 1000


def holds(rule: Rule, ask: Ask, fired: int) -> bool:
    """Whether a rule decides this call; `fired` is how often it has done so."""
    salt = f"{rule.fault}:{ask.ordinal}" if rule.per_try else f"{rule.fault}"
    return (
        (rule.times is None or fired < rule.times)
        and (rule.nth is None or ask.number in rule.nth)
        and (rule.after is None or ask.number >= rule.after)
        and (rule.until is None or ask.number <= rule.until)
        and (rule.first_tries is None or ask.ordinal <= rule.first_tries)
        and (rule.contains is None or rule.contains in ask.prompt)
        and (rule.above_in_flight is None or ask.in_flight > rule.above_in_flight)
        and (rule.share is None or ask.chance(salt) < rule.share)
    )
