"""`direct/<model>`: the OpenAI protocol over one aiohttp session, for servers such as vLLM, SGLang
and llama.cpp, where litellm's milliseconds a call are the bottleneck.

It knows no provider's peculiarities and must not grow any: that is litellm's purpose. aiohttp is
imported on the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from labelkit import codec
from labelkit.errors import FailureKind, ProviderError
from labelkit.records import Call, Completion, Request, Usage
from labelkit.samplers import Price, SamplerSettings, endpoints, protocol
from labelkit.samplers.faults import Secrets, without_userinfo

if TYPE_CHECKING:
    import aiohttp


class DirectSampler:
    """See `Sampler`. The model's name on the wire is what follows `direct/`."""

    paid = True
    supports_seed = True

    def __init__(self, settings: SamplerSettings, folder: Path) -> None:
        self._settings = settings
        self._bases = endpoints.endpoint_urls(settings)
        self.endpoints = max(1, len(self._bases))
        self.slots = settings.concurrency
        self._model = settings.model.partition("/")[2]
        self._secrets = Secrets(settings.headers, self._bases)
        self._urls = [without_userinfo(base) for base in self._bases]
        self._headers = [self._headers_for(base) for base in self._bases]
        self._session: aiohttp.ClientSession | None = None
        self._body_of: tuple[str, bytes] = ("", b"")

    async def sample(self, call: Call) -> Completion:
        path = "chat/completions" if call.request.api == "chat" else "completions"
        status, headers, raw = await self._post(
            f"{self._urls[call.endpoint]}/{path}",
            self._body(call),
            self._headers[call.endpoint],
        )
        if not 200 <= status < 300:
            raise self._secrets.refused(status, raw.decode("utf-8", "replace"), headers)
        try:
            completion = protocol.completion(protocol.decode(raw))
        except protocol.Unreadable as error:
            raise self._secrets.error(
                "unreadable", str(error), error_type=error.error_type, status_code=status
            ) from None
        cost_usd = self.price_usd(completion.usage)
        if cost_usd is None:
            return completion
        return completion.model_copy(update={"cost_usd": cost_usd})

    def price_usd(self, usage: Usage) -> float | None:
        return endpoints.priced(self._settings, usage)

    def ask_price(self) -> None:
        """Take litellm's price for the model's name, where its table has one. Imports litellm."""
        from labelkit.samplers.litellm import load

        known = load().model_cost.get(self._model, {})
        per_token = known.get("input_cost_per_token"), known.get("output_cost_per_token")
        if None not in per_token:
            price = Price(input_per_mtok=per_token[0] * 1e6, output_per_mtok=per_token[1] * 1e6)
            self._settings = self._settings.model_copy(update={"price": price})

    def check(self, request: Request) -> list[str]:
        found = protocol.misuse(request)
        if not self._model:
            found.append("model: direct/ needs the model's name on the server (direct/<model>)")
        if not self._bases:
            found.append(
                f"api_base: {self._settings.model} needs the server's URL"
                " (for instance http://localhost:8000/v1)"
            )
        return found + endpoints.url_faults(self._bases, self._secrets)

    async def served(self, endpoint: int) -> str | None:
        return await endpoints.served_model(
            self._session or self._open(),
            self._urls[endpoint] if self._urls else None,
            self._headers[endpoint] if self._headers else {},
            self._model,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        """The session that all calls share. Its pool is unlimited: limits are kept elsewhere, and
        a call that queues inside the client would time out there."""
        import aiohttp

        settings = self._settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=0),
            timeout=aiohttp.ClientTimeout(
                total=settings.timeout_s, sock_connect=settings.connect_timeout_s
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=False,
        )
        return self._session

    def _headers_for(self, base: str) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            **endpoints.auth_header(base),
            **self._settings.headers,
        }

    def _body(self, call: Call) -> bytes:
        """What is sent; written once for draws of one request that follow each other."""
        request = call.request
        if (call.seed, call.messages, call.text) != (None, request.messages, request.text):
            return codec.dumps(self._fields(call))
        if self._body_of[0] != call.key.request:
            self._body_of = call.key.request, codec.dumps(self._fields(call))
        return self._body_of[1]

    def _fields(self, call: Call) -> dict[str, JsonValue]:
        body: dict[str, JsonValue] = {"model": self._model}
        if call.request.api == "chat":
            body["messages"] = list(call.messages)
        else:
            body["prompt"] = call.text
        body.update(protocol.parameters(call))
        if call.request.response_schema is not None:
            body["response_format"] = protocol.response_format(call.request.response_schema)
        body.update(protocol.extra_body(call.request))
        return body

    async def _post(
        self, url: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one exchange; raises ProviderError where there is none."""
        import aiohttp

        session = self._session or self._open()
        response: aiohttp.ClientResponse | None = None
        try:
            response = await session.post(url, data=body, headers=headers, allow_redirects=False)
            return response.status, response.headers, await response.read()
        except aiohttp.ClientSSLError as error:
            raise self._unreached("fatal", "tls_error", error) from None
        except aiohttp.ConnectionTimeoutError as error:
            raise self._unreached("transient", "connect_timeout", error) from None
        except TimeoutError:
            said = f"no reply within {self._settings.timeout_s:g} s"
            raise self._secrets.error("timeout", said, error_type="timeout") from None
        except aiohttp.ClientError as error:
            if response is None:
                sent = not isinstance(error, aiohttp.ClientConnectorError)
                raise self._unreached("transient", "connection_error", error, paid=sent) from None
            if not 200 <= response.status < 300:
                return response.status, response.headers, b""
            said = f"the reply broke off: {error}"
            raise self._secrets.error("unreadable", said, error_type="cut_body") from None

    def _unreached(
        self, kind: FailureKind, error_type: str, error: Exception, *, paid: bool | None = None
    ) -> ProviderError:
        """A call that got no byte of an answer; `paid` where it may have reached the server."""
        said = f"no answer for {self._settings.model}: {error or type(error).__name__}"
        return self._secrets.error(kind, said, error_type=error_type, paid=paid)
