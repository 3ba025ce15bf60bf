"""Any model that litellm reaches: one call, one try, no cache, nothing dropped without a word.

Everything odd about litellm stays in this file: its slow import, its hidden fields, its exceptions.
It must never retry, share state between calls, or let litellm answer from a cache.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import ssl
import warnings
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labelkit.errors import ProviderError, UsageError
from labelkit.records import Call, Completion, Message, Request, Usage
from labelkit.samplers import SamplerSettings, endpoints, protocol
from labelkit.samplers.batches import PROVIDERS, BatchApi, table_rates
from labelkit.samplers.faults import Secrets, basic_auth, without_userinfo
from labelkit.schema import schema_instructions

NO_CACHE = {"no-cache": True, "no-store": True}
PLACEHOLDER_KEY = "no-key"
"""Sent to servers of one's own, which ask for none, because the client insists on one."""

GRACE_S = 1.0
"""litellm's own timeout goes first, since it knows whether the connection ever stood; it counts
per read, though, so a reply that trickles in is ended this much later."""

_CHECKED = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "stop",
    "reasoning_effort",
    "logprobs",
    "tool_choice",
)
_NOT_OPENAI = ("top_k", "min_p", "repetition_penalty", "chat_template_kwargs")
_NOT_IN_A_BODY = (
    "num_retries",
    "max_retries",
    "cache",
    "timeout",
    "api_base",
    "api_key",
    "extra_headers",
)
_RETRYABLE = (408, 409, 425, 429)


@cache
def load() -> Any:
    """The litellm module, imported once (2–4 s) and set up for load.

    Its price table is the one in the package (no fetch), its pools are as good as unlimited, the
    collector does not walk its 3,000 modules again, and it prints nothing.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    # Above its pool size the client queues calls and lets them time out there; 0 is not unlimited.
    os.environ.setdefault("AIOHTTP_CONNECTOR_LIMIT", "1000000")
    os.environ.setdefault("AIOHTTP_CONNECTOR_LIMIT_PER_HOST", "1000000")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import litellm
    finally:
        if was_enabled:
            gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    litellm.suppress_debug_info = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    # Some of its modules, imported on the first call, make pydantic warn about their own types.
    warnings.filterwarnings("ignore", module=r"pydantic\._internal\._generate_schema")
    return litellm


def lacking_keys(model: str) -> str | None:
    """The variables that a model's own provider asks for and that are not set, as words; None where
    nothing lacks. Of several API keys (Gemini's two) one will do."""
    told = load().validate_environment(model=model)
    names: list[str] = [] if told["keys_in_environment"] else told["missing_keys"]
    any_will_do = all(name.endswith("_API_KEY") for name in names)
    return (" or " if any_will_do else " and ").join(names) or None


class LitellmSampler:
    """See `Sampler`. Of the providers only some (openai, azure, bedrock) get `connect_timeout_s`;
    litellm gives the others one timeout for everything."""

    paid = True

    def __init__(self, settings: SamplerSettings, folder: Path) -> None:
        self._settings = settings
        self._bases = endpoints.endpoint_urls(settings)
        self.endpoints = max(1, len(self._bases))
        self.slots = settings.concurrency
        self._secrets = Secrets(settings.headers, self._bases)

    @property
    def supports_seed(self) -> bool:
        return "seed" in self._taken

    async def sample(self, call: Call) -> Completion | None:
        litellm = load()
        arguments = self._arguments(call)
        try:
            async with asyncio.timeout(self._settings.timeout_s + GRACE_S):
                if call.request.api == "chat":
                    response = await litellm.acompletion(**arguments)
                else:
                    response = await litellm.atext_completion(**arguments)
        except Exception as error:
            raise self._failure(error) from None
        try:
            completion = protocol.completion(_payload(response))
        except protocol.Unreadable as error:
            raise self._secrets.error(
                "unreadable", str(error), error_type=error.error_type, status_code=200
            ) from None
        cost_usd = self._cost_usd(response, completion.usage)
        return completion.model_copy(update={"cost_usd": cost_usd})

    def price_usd(self, usage: Usage) -> float | None:
        if self._settings.price is not None:
            return endpoints.priced(self._settings, usage)
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        try:
            prices = load().cost_per_token(
                model=self._settings.model,
                prompt_tokens=usage.input_tokens,
                completion_tokens=usage.output_tokens,
            )
        except Exception:  # litellm raises a bare Exception for a model that its table lacks
            return None
        return float(sum(prices))

    def check(self, request: Request) -> list[str]:
        provider = self._provider
        if provider is None:
            return [
                f"model: litellm does not know whose model {self._settings.model!r} is;"
                " write provider/model (openai/…, anthropic/…, hosted_vllm/…)"
            ]
        found = protocol.misuse(request) + endpoints.url_faults(self._bases, self._secrets)
        given = {n: v for n, v in request.parameters.items() if n in _CHECKED and v is not None}
        if request.tools:
            given["tools"] = list(request.tools)
        refused = [name for name in given if name not in self._taken]
        if provider in ("openai", "azure") and not self._bases:
            refused += [n for n in _NOT_OPENAI if request.parameters.get(n) is not None]
        model = self._settings.model
        found += [f"{name}: {model} does not take it; remove it" for name in refused]
        found += self._bad_values({n: v for n, v in given.items() if n in self._taken})
        found += [
            f"api_base: {provider} endpoints take no user and password in the URL;"
            " use openai/… or direct/…"
            for base in self._bases
            if provider != "openai" and basic_auth(base)
        ]
        keys = None if self._bases else lacking_keys(model)
        return found + ([f"model: {model} needs {keys} in the environment"] if keys else [])

    async def served(self, endpoint: int) -> str | None:
        if not self._bases:
            return None
        import aiohttp

        base = self._bases[endpoint]
        headers = dict(self._settings.headers)
        if self._provider == "openai":
            headers = {**endpoints.auth_header(base), **headers}
        wire_model = self._settings.model.removeprefix(f"{self._provider}/")
        async with aiohttp.ClientSession() as session:
            return await endpoints.served_model(
                session, without_userinfo(base), headers, wire_model
            )

    def batches(self) -> BatchApi:
        """The provider's batch API. Raises UsageError where litellm reaches none."""
        provider = self._provider
        if provider not in PROVIDERS:
            raise UsageError(
                f"sampler.model: {provider} has no batch API that litellm reaches",
                hint=f"--batch is for {', '.join(PROVIDERS)}",
            )
        settings = self._settings
        arguments: dict[str, Any] = {
            "custom_llm_provider": provider,
            "max_retries": 0,
            "timeout": settings.timeout_s,
        }
        if settings.headers:
            arguments["extra_headers"] = dict(settings.headers)
        if self._bases:
            base = self._bases[0]
            arguments["api_base"] = without_userinfo(base)
            arguments["api_key"] = endpoints.key_for(base) or PLACEHOLDER_KEY
        rates = None if settings.price else table_rates(load(), settings.model)
        return BatchApi(load(), arguments, self._batch_body, self._failure, self._secrets, rates)

    def _batch_body(self, call: Call) -> dict[str, Any]:
        """What a call's body would be if it went out alone."""
        arguments = self._arguments(call)
        extra = arguments.pop("extra_body", {})
        body = {name: value for name, value in arguments.items() if name not in _NOT_IN_A_BODY}
        bare = self._settings.model.removeprefix(f"{self._provider}/")
        return {**body, **extra, "model": bare}

    async def close(self) -> None:
        """Close litellm's clients, where it was ever loaded."""
        if load.cache_info().currsize:
            from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

            await close_litellm_async_clients()

    @cached_property
    def _provider(self) -> str | None:
        """litellm's name for who serves the model; None where it cannot tell."""
        base = without_userinfo(self._bases[0]) if self._bases else None
        try:
            found = load().get_llm_provider(model=self._settings.model, api_base=base)
        except Exception:  # litellm's BadRequestError: no provider in the model's name
            return None
        return str(found[1])

    @cached_property
    def _taken(self) -> frozenset[str]:
        """The OpenAI parameters that the model takes, by litellm's tables."""
        provider = self._provider
        bare = self._settings.model.removeprefix(f"{provider}/")
        known = load().get_supported_openai_params(model=bare, custom_llm_provider=provider)
        return frozenset(known or ())

    @cached_property
    def _takes_schema(self) -> bool:
        """json_schema is enforced: by litellm's table, or by any server of one's own."""
        if self._bases and self._provider in ("openai", "hosted_vllm"):
            return True
        return bool(load().supports_response_schema(model=self._settings.model))

    def _bad_values(self, given: dict[str, JsonValue]) -> list[str]:
        """What litellm refuses to send although the model takes the parameter as such (the fixed
        temperature of reasoning models, say)."""
        litellm = load()
        bare = self._settings.model.removeprefix(f"{self._provider}/")
        try:
            litellm.get_optional_params(model=bare, custom_llm_provider=self._provider, **given)
        except litellm.UnsupportedParamsError as error:
            # The rest of its message recommends dropping parameters in silence.
            said = str(error).removeprefix("litellm.UnsupportedParamsError: ")
            return [f"parameters: {self._secrets.scrub(said.partition(' To drop')[0])}"]
        return []

    def _arguments(self, call: Call) -> dict[str, Any]:
        import httpx

        settings, request = self._settings, call.request
        arguments: dict[str, Any] = {
            **protocol.parameters(call),
            "model": settings.model,
            "num_retries": 0,
            "max_retries": 0,
            "cache": NO_CACHE,
            "timeout": httpx.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
        }
        extra = protocol.extra_body(request)
        if extra:
            arguments["extra_body"] = extra
        headers = dict(settings.headers)
        if self._bases:
            base = self._bases[call.endpoint]
            arguments["api_base"] = without_userinfo(base)
            if self._provider == "openai":
                headers = {**endpoints.auth_header(base), **headers}
                arguments["api_key"] = PLACEHOLDER_KEY
            else:
                arguments["api_key"] = endpoints.key_for(base) or PLACEHOLDER_KEY
        if headers:
            arguments["extra_headers"] = headers
        if request.api == "completions":
            arguments["prompt"] = call.text
            return arguments
        messages = list(call.messages)
        schema = request.response_schema
        if schema is not None and self._takes_schema:
            arguments["response_format"] = protocol.response_format(schema)
        elif schema is not None:
            messages = _asked_for(schema, messages)
        arguments["messages"] = messages
        return arguments

    def _cost_usd(self, response: Any, usage: Usage) -> float | None:
        if self._settings.price is not None:
            return endpoints.priced(self._settings, usage)
        if usage.input_tokens is None and usage.output_tokens is None:
            return None
        cost_usd = getattr(response, "_hidden_params", {}).get("response_cost")
        return float(cost_usd) if isinstance(cost_usd, int | float) else None

    def _failure(self, error: Exception) -> ProviderError:
        """What a litellm exception means, by what stands behind it in its chain: an HTTP status,
        a broken transport, or neither (then a reply came that litellm could not read)."""
        import aiohttp
        import httpx

        fail, chain = self._secrets.error, list(_chain(error))
        said = f"{self._settings.model}: {error}"

        def caused_by(*kinds: type[BaseException]) -> bool:
            return any(isinstance(link, kinds) for link in chain)

        if isinstance(error, TimeoutError):
            said = f"no reply within {self._settings.timeout_s:g} s"
            return fail("timeout", said, error_type="timeout")
        for link in chain:
            if isinstance(link, httpx.HTTPStatusError):
                body = _body(link.response) or str(error)
                return self._secrets.refused(link.response.status_code, body, link.response.headers)
        if caused_by(aiohttp.ClientPayloadError):
            return fail("unreadable", f"the reply broke off: {error}", error_type="cut_body")
        if caused_by(json.JSONDecodeError):
            said = f"the reply is not JSON: {error}"
            return fail("unreadable", said, error_type="not_json")
        if caused_by(ssl.SSLError, aiohttp.ClientSSLError):
            return fail("fatal", said, error_type="tls_error")
        if caused_by(ImportError):
            return fail("fatal", said, error_type="missing_library")
        if caused_by(httpx.ConnectTimeout, aiohttp.ConnectionTimeoutError):
            return fail("transient", said, error_type="connect_timeout")
        if caused_by(httpx.TimeoutException, load().Timeout):
            said = f"no reply within {self._settings.timeout_s:g} s"
            return fail("timeout", said, error_type="timeout")
        if caused_by(httpx.TransportError, aiohttp.ClientConnectionError):
            sent = not caused_by(httpx.ConnectError, aiohttp.ClientConnectorError)
            return fail("transient", said, error_type="connection_error", paid=sent)
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and 400 <= status < 500 and status not in _RETRYABLE:
            return self._secrets.refused(status, str(error), {})
        said = f"litellm could not read the reply: {error}"
        return fail("unreadable", said, error_type=type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from or during, up to an earlier try's end."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not isinstance(error, ProviderError):
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _body(response: Any) -> str:
    import httpx

    try:
        return str(response.text)
    except httpx.StreamError:
        return ""


def _payload(response: Any) -> JsonValue:
    """A litellm response as the protocol's payload, without what litellm made up: zeros for tokens
    that no one counted, `stop` for a finish reason that it does not know."""
    payload: Any = protocol.clean(response.model_dump())
    usage = payload.get("usage") or {}
    if not usage.get("prompt_tokens") and not usage.get("completion_tokens"):
        payload["usage"] = None
    for choice in payload.get("choices") or ():
        native = (choice.get("provider_specific_fields") or {}).get("native_finish_reason")
        choice["finish_reason"] = native or choice.get("finish_reason")
    return payload  # type: ignore[no-any-return]


def _asked_for(schema: dict[str, JsonValue], messages: list[Message]) -> list[Message]:
    """The messages with the schema asked for in words, at the end of the last one."""
    last = messages[-1]
    words = f"\n\n{schema_instructions(schema)}"
    content = last.get("content")
    if isinstance(content, list):
        return [*messages[:-1], {**last, "content": [*content, {"type": "text", "text": words}]}]
    return [*messages[:-1], {**last, "content": f"{content or ''}{words}"}]
