"""Endpoints and money, as both network transports see them: URLs, keys, served models, prices.

Prices that litellm knows are the litellm sampler's matter; here only the spec's own count.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from pydantic import JsonValue

from labelkit import codec
from labelkit.records import Call, Usage
from labelkit.samplers import SamplerSettings, protocol
from labelkit.samplers.faults import (
    Secrets,
    basic_auth,
    basic_token,
    split_url,
    without_userinfo,
)

if TYPE_CHECKING:
    import aiohttp

KEY_VARIABLE = "LABELKIT_API_KEY"
SERVED_TIMEOUT_S = 5.0


def endpoint_urls(settings: SamplerSettings) -> tuple[str, ...]:
    """The replicas' base URLs as given, without a final slash."""
    given = settings.api_base
    urls = [given] if isinstance(given, str) else given or []
    return tuple(url.strip().rstrip("/") for url in urls)


def shown_urls(settings: SamplerSettings) -> tuple[str, ...]:
    """The replicas' URLs as they may be shown: no credentials, no query."""
    return tuple(without_userinfo(url).partition("?")[0] for url in endpoint_urls(settings))


def key_for(base: str) -> str | None:
    """The key that may go to an endpoint which the spec names, None where there is none.

    A spec may come from a stranger, so no provider's key follows its `api_base`: only the variable
    made for that does, and OPENAI_API_KEY to OpenAI itself.
    """
    host = split_url(base).hostname or ""
    own = ("OPENAI_API_KEY",) if host == "api.openai.com" else ()
    for variable in (KEY_VARIABLE, *own):
        key = os.environ.get(variable, "").strip()
        if key:
            return key
    return None


def auth_header(base: str) -> dict[str, str]:
    """The Authorization header for an endpoint: from its userinfo, else its key."""
    userinfo = basic_auth(base)
    if userinfo is not None:
        return {"Authorization": f"Basic {basic_token(*userinfo)}"}
    key = key_for(base)
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def priced(settings: SamplerSettings, usage: Usage) -> float | None:
    """USD by the spec's own price; None where it gives none or the tokens are unknown."""
    price = settings.price
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    spent = usage.input_tokens * price.input_per_mtok + usage.output_tokens * price.output_per_mtok
    return spent / 1_000_000


def input_bound(call: Call) -> int:
    """More input tokens than the call can have: one a UTF-8 byte of all that is sent as text.

    A token of a byte-level or byte-fallback vocabulary covers at least one byte; the JSON around
    messages, tools and schema stands for what the chat template adds, 16 for its frame.
    """
    request = call.request
    said: list[JsonValue] = [*call.messages, call.text, *request.tools, request.response_schema]
    return len(codec.dumps(said)) + 16


def worst_usage(call: Call) -> Usage:
    """The most tokens that a call can take; its reply's are None without `max_tokens`."""
    limit = call.request.parameters.get("max_tokens")
    return Usage(
        input_tokens=input_bound(call), output_tokens=limit if isinstance(limit, int) else None
    )


def url_faults(bases: tuple[str, ...], secrets: Secrets) -> list[str]:
    """What is wrong with endpoint URLs, one sentence each."""
    return [
        f"api_base: {secrets.scrub(base.rpartition('@')[2])!r} is not an http(s) URL"
        for base in bases
        if not _is_http(base)
    ]


async def served_model(
    session: aiohttp.ClientSession, base: str | None, headers: dict[str, str], model: str
) -> str | None:
    """What a server's /models says about `model`: its root, else its id; None on any trouble, as
    few servers answer this and none must."""
    import aiohttp

    if base is None:
        return None
    try:
        async with asyncio.timeout(SERVED_TIMEOUT_S):
            async with session.get(f"{base}/models", headers=headers) as response:
                listed = protocol.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    entries = listed.get("data") if isinstance(listed, dict) else None
    listing = entries if isinstance(entries, list) else []
    models = [entry for entry in listing if isinstance(entry, dict)]
    # A server of one model may list it under a name of its own.
    ours = [entry for entry in models if entry.get("id") == model] or (
        models if len(models) == 1 else []
    )
    name = (ours[0].get("root") or ours[0].get("id")) if ours else None
    return name if isinstance(name, str) else None


def _is_http(url: str) -> bool:
    parts = split_url(url)
    try:
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
