"""What providers say when they refuse, and what it means for a run."""

from __future__ import annotations

import json

import pytest

from labelkit.samplers.faults import Secrets, without_userinfo

# Bodies as the providers document or send them.
ANTHROPIC_CREDIT = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "Your credit balance is too low to access the Anthropic API.",
    },
}
GEMINI_KEY = [
    {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
        }
    }
]
GEMINI_RATE = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "status": "RESOURCE_EXHAUSTED",
    }
}
OPENROUTER_MODERATION = {
    "error": {
        "code": 403,
        "message": "Your chosen model requires moderation and your input was flagged",
    }
}
AZURE_FILTER = {
    "error": {
        "code": "content_filter",
        "message": "The response was filtered",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}
VLLM_NO_MODEL = {
    "object": "error",
    "message": "The model `x` does not exist.",
    "type": "NotFoundError",
    "code": 404,
}
LLAMA_CPP_CONTEXT = {
    "error": {
        "code": 400,
        "message": "request (3031 tokens) exceeds the available context size (2048 tokens)",
        "type": "exceed_context_size_error",
    }
}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, ANTHROPIC_CREDIT, "fatal"),
        (400, GEMINI_KEY, "fatal"),
        (429, GEMINI_RATE, "transient"),
        (403, OPENROUTER_MODERATION, "content_filter"),
        (400, AZURE_FILTER, "content_filter"),
        (404, VLLM_NO_MODEL, "fatal"),
        (400, LLAMA_CPP_CONTEXT, "row"),
        (502, "<html>Bad gateway</html>", "transient"),
        (307, "", "fatal"),
        (418, "", "row"),
    ],
)
def test_refusals_of_real_providers_have_their_class(status: int, body: object, kind: str) -> None:
    said = body if isinstance(body, str) else json.dumps(body)
    error = Secrets({}, ()).refused(status, said, {})
    assert (error.kind, error.status_code) == (kind, status)


def test_the_message_and_type_are_the_providers_own() -> None:
    error = Secrets({}, ()).refused(400, json.dumps(LLAMA_CPP_CONTEXT), {})
    assert str(error) == (
        "HTTP 400: request (3031 tokens) exceeds the available context size (2048 tokens)"
    )
    assert error.error_type == "exceed_context_size_error"


def test_milliseconds_of_retry_after_are_read() -> None:
    error = Secrets({}, ()).refused(429, "", {"Retry-After-Ms": "250", "Retry-After": "9"})
    assert error.retry_after_s == 0.25


def test_secrets_of_every_origin_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PROVIDER_KEY", "envsecret-1")
    secrets = Secrets(
        {"Authorization": "Token headersecret-2"}, ("https://me:p%40sssecret-3@host/v1",)
    )
    said = secrets.scrub(
        "envsecret-1 headersecret-2 p@sssecret-3 p%40sssecret-3 bWU6cEBzc3NlY3JldC0z"
        " https://other:word-4@host/ Bearer abcdef-5 sk-proj-abcdefghijklmnop6\x00\x1b[2J\u202e"
    )
    for secret in ("envsecret", "headersecret", "sssecret", "bWU6", "word-4", "abcdef", "mnop6"):
        assert secret not in said
    assert said.isprintable()


def test_urls_are_shown_without_user_and_password() -> None:
    assert without_userinfo("https://me:p%40ss@host:81/v1?a=b") == "https://host:81/v1?a=b"
    assert without_userinfo("http://[bad") == ""
