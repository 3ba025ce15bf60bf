"""A provider's batch API through litellm: files up, a batch of them, files down.

One call a method and no retries: what a failure means for what was submitted is the caller's
matter. Rows travel in the OpenAI form, which litellm turns into each provider's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelkit import codec
from labelkit.errors import ProviderError
from labelkit.records import Call, Completion, Usage
from labelkit.samplers import protocol
from labelkit.samplers.faults import Secrets

PROVIDERS = ("openai", "azure", "vertex_ai", "bedrock", "hosted_vllm", "mistral", "xai")
"""Those that litellm reaches a batch API of."""

_OVER = ("completed", "failed", "expired", "cancelled")
_NAMED_AT_MOST = 1000  # batches that are looked through for one that may have been submitted


@dataclass(frozen=True)
class BatchState:
    """`over`: nothing more will come. `files`: where its results stand. `trouble`: why there are
    none."""

    over: bool
    files: tuple[str, ...] = ()
    trouble: str | None = None


class BatchApi:
    """`arguments` go with every call (provider, base, key); `body` makes a call's JSON body;
    `failure` turns what litellm raises into a ProviderError; `rates` are USD a token in and out."""

    def __init__(
        self,
        litellm: Any,
        arguments: dict[str, Any],
        body: Callable[[Call], dict[str, Any]],
        failure: Callable[[Exception], ProviderError],
        secrets: Secrets,
        rates: tuple[float, float] | None,
    ) -> None:
        self._litellm = litellm
        self._arguments = arguments
        self._body = body
        self._failure = failure
        self._secrets = secrets
        self._rates = rates

    def row(self, call: Call, custom_id: str) -> bytes:
        """A call as a line of an input file."""
        return (
            codec.dumps(
                {
                    "custom_id": custom_id,
                    "method": "POST",
                    "url": _endpoint(call.request.api),
                    "body": self._body(call),
                }
            )
            + b"\n"
        )

    def price_usd(self, usage: Usage) -> float | None:
        """What a row cost at the provider's rates for batches; None where they are unknown."""
        if self._rates is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        return usage.input_tokens * self._rates[0] + usage.output_tokens * self._rates[1]

    async def upload(self, path: Path) -> str:
        """The id that the provider gave an input file."""
        with path.open("rb") as file:
            made = await self._call("acreate_file", file=(path.name, file), purpose="batch")
        return str(made.id)

    async def submit(self, file_id: str, api: str) -> str:
        """Start a batch; from here on it costs."""
        made = await self._call(
            "acreate_batch",
            completion_window="24h",
            endpoint=_endpoint(api),
            input_file_id=file_id,
            metadata={"labelkit": file_id},
        )
        return str(made.id)

    async def find(self, file_id: str) -> str | None:
        """The batch that was made of an input file, None where there is none."""
        seen, after = 0, None
        while seen < _NAMED_AT_MOST:
            page = await self._call("alist_batches", limit=100, after=after)
            listed = list(page.data)
            for batch in listed:
                if batch.input_file_id == file_id:
                    return str(batch.id)
            seen += len(listed)
            if not listed or not getattr(page, "has_more", False):
                return None
            after = str(listed[-1].id)
        return None

    async def state(self, batch_id: str) -> BatchState:
        batch = await self._call("aretrieve_batch", batch_id=batch_id)
        if batch.status not in _OVER:
            return BatchState(over=False)
        files = tuple(str(name) for name in (batch.output_file_id, batch.error_file_id) if name)
        faults = getattr(batch.errors, "data", None) or []
        said = "; ".join(str(fault.message) for fault in faults) or f"it is {batch.status}"
        return BatchState(True, files, None if files else self._secrets.scrub(said))

    async def content(self, file_id: str) -> bytes:
        return bytes((await self._call("afile_content", file_id=file_id)).content)

    def read(self, line: bytes) -> tuple[str, Completion | ProviderError]:
        """A line of a result file: its custom id, and the reply or what became of it.

        Raises Unreadable where it is no such line.
        """
        row = protocol.decode(line)
        if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
            raise protocol.Unreadable("not_a_result", "a line of a result file has no custom_id")
        custom_id, response = str(row["custom_id"]), row.get("response")
        if not isinstance(response, dict):
            said = codec.dumps(row.get("error")).decode()
            return custom_id, self._secrets.error("transient", said, error_type="no_response")
        status, body = response.get("status_code"), response.get("body")
        if status != 200:
            code = status if isinstance(status, int) else 500
            return custom_id, self._secrets.refused(code, codec.dumps(body).decode(), {})
        try:
            return custom_id, protocol.completion(body)
        except protocol.Unreadable as error:
            failure = self._secrets.error("unreadable", str(error), error_type=error.error_type)
            return custom_id, failure

    async def _call(self, name: str, **arguments: Any) -> Any:
        try:
            return await getattr(self._litellm, name)(**self._arguments, **arguments)
        except Exception as error:  # the foreign border, as in the sampler
            raise self._failure(error) from None


def table_rates(litellm: Any, model: str) -> tuple[float, float] | None:
    """litellm's rates for batches, USD a token in and out; None where its table has none."""
    for name in (model, model.partition("/")[2]):
        known = litellm.model_cost.get(name) or {}
        into, out = (known.get(f"{way}_cost_per_token_batches") for way in ("input", "output"))
        if into is not None and out is not None:
            return float(into), float(out)
    return None


def _endpoint(api: str) -> Any:
    return "/v1/chat/completions" if api == "chat" else "/v1/completions"
