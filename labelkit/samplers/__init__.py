"""Samplers: a call in, a completion out. One file a transport; this page is their registry.

A model string chooses the transport by its prefix: `local/…` the embedded model, `direct/…` the
OpenAI protocol without litellm, anything else litellm; a `recorded` section needs no model at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from labelkit.prompt import PromptSettings
from labelkit.spec import Section

REGISTRY: dict[str, str] = {
    "litellm": "labelkit.samplers.litellm:LitellmSampler",
    "local": "labelkit.samplers.local:LocalSampler",
    "recorded": "labelkit.samplers.recorded:RecordedSampler",
    "direct": "labelkit.samplers.direct:DirectSampler",
}
"""Transport → `module:Class`; each class is made by `Class(settings, folder)`."""


class Recorded(Section):
    """Where recorded replies stand. Exactly one of `text`, `texts` (paths into a row), or neither
    for OpenAI-style chat or batch output rows. `id` is the field that names the task; without it
    rows belong to the tasks of the same file."""

    file: str
    id: str | None = None
    text: str | None = None
    texts: list[str] | None = None


class Price(Section):
    """USD per million tokens, where litellm's table does not know the model."""

    input_per_mtok: Annotated[float, Field(ge=0)]
    output_per_mtok: Annotated[float, Field(ge=0)]


class BatchSettings(Section):
    """How `--batch` submits: files of at most so many rows and bytes, looked at every `poll_s`.

    Providers take up to 50,000 rows and 200 MB; a result file is read as a whole, so that smaller
    ones bound memory.
    """

    max_requests: Annotated[int, Field(ge=1, le=50_000)] = 10_000
    max_bytes: Annotated[int, Field(ge=1, le=200_000_000)] = 100_000_000
    poll_s: Annotated[float, Field(gt=0)] = 30.0


class SamplerSettings(PromptSettings):
    """A whole sampler section: what shapes the request, and how it is carried out.

    Everything below is operational: it never enters a digest or a fingerprint. `concurrency` caps
    the calls in flight at an endpoint; without `adaptive_concurrency` it is their number. A draw is
    tried at most `max_tries` times, and not again later than `total_timeout_s` after its first try;
    the run stops when an endpoint that went down has not come back within `give_up_s`.
    """

    model: str = "recorded"
    api_base: str | list[str] | None = None
    headers: dict[str, str] = {}
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    connect_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    recorded: Recorded | None = None
    price: Price | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None
    adaptive_concurrency: bool = True
    max_tries: Annotated[int, Field(ge=1, le=50)] = 6
    total_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    give_up_s: Annotated[float, Field(gt=0)] = 900.0
    rpm: Annotated[int, Field(ge=1)] | None = None
    tpm: Annotated[int, Field(ge=1)] | None = None
    batch: BatchSettings = BatchSettings()

    @property
    def transport(self) -> str:
        """The registry key that carries this model."""
        if self.recorded is not None:
            return "recorded"
        prefix = self.model.partition("/")[0]
        return prefix if prefix in ("local", "direct") else "litellm"


def revision_of(settings: SamplerSettings, folder: Path) -> str | None:
    """Which checkpoint a model string stands for: `revision`, else the hash of an embedded model's
    file. Raises UsageError where that file is not there."""
    if settings.revision is not None or settings.transport != "local":
        return settings.revision
    from labelkit.samplers.local import LocalSampler

    return LocalSampler(settings, folder).revision()
