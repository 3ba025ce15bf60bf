"""What a run may cost, told before anything is spent: if its caps can be kept, and a projection.

Nothing here spends, and nothing here decides: admission under a cap is the limits' matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from labelkit.errors import Fault
from labelkit.plan import Plan
from labelkit.records import Call, DrawKey, Request, Task, Usage
from labelkit.samplers.direct import DirectSampler
from labelkit.samplers.endpoints import worst_usage
from labelkit.seams import Sampler

_ONE_EACH = Usage(input_tokens=1, output_tokens=1)


def unpriced(plan: Plan, samplers: Mapping[str, Sampler]) -> list[Fault]:
    """Why the spec's caps cannot be kept: calls whose length or price nobody knows."""
    spec, document = plan.spec, plan.document
    faults: list[Fault] = []
    for role, settings in plan.sampler_settings.items():
        sampler = samplers.get(role)
        if sampler is None or not sampler.paid:
            continue
        at = plan.sampler_at(role)
        if spec.budget is not None:
            ask_price(sampler)
        price = sampler.price_usd(_ONE_EACH)
        if spec.budget is not None and price is None:
            said = f"`budget` needs the price of {settings.model}, and none is known"
            fix = "set price: {input_per_mtok: USD, output_per_mtok: USD}"
            faults.append(document.fault((*at, "price"), said, fix))
        capped = "max_tokens_total" if spec.max_tokens_total else "budget" if spec.budget else None
        if capped and settings.max_tokens is None and (price or spec.max_tokens_total):
            said = f"`{capped}` needs the longest reply that one call of the {role} may bring"
            faults.append(document.fault((*at, "max_tokens"), said, "set max_tokens"))
    return faults


def ask_price(sampler: Sampler) -> None:
    """Have a sampler without a price look it up where that takes an effort."""
    if isinstance(sampler, DirectSampler) and sampler.price_usd(_ONE_EACH) is None:
        sampler.ask_price()


def dearest(samplers: Iterable[Sampler], n_tokens: int) -> float:
    """What so many tokens of calls made without a known price may have cost, at the dearest price
    that one of the samplers has now."""
    each = (
        Usage(input_tokens=n_tokens, output_tokens=0),
        Usage(input_tokens=0, output_tokens=n_tokens),
    )
    usds = [sampler.price_usd(usage) for sampler in samplers for usage in each] if n_tokens else []
    return max((usd for usd in usds if usd is not None), default=0.0)


@dataclass
class Projection:
    """What calls that are still to be made may cost.

    `most_usd`: every prompt a token a byte, every reply as long as max_tokens allows. `least_usd`:
    a token for six bytes of prompt, and one token a reply. None: unknown.
    """

    least_usd: float | None = 0.0
    most_usd: float | None = 0.0

    def add(
        self,
        sampler: Sampler,
        task: Task,
        request: Request,
        n_least: int,
        n_most: int,
        *,
        unseen_tokens: int | None = 0,
    ) -> None:
        """Count so many calls of a request, in which replies of at most `unseen_tokens` (None:
        unknown) are yet to be put. All models are taken to count tokens alike."""
        key = DrawKey(task_id=task.id, stage="candidate", request=request.digest, sample_index=0)
        messages, text = request.messages, request.text
        call = Call(request=request, task=task, key=key, messages=messages, text=text)
        most = worst_usage(call)
        least = Usage(input_tokens=(most.input_tokens or 0) // 6, output_tokens=1)
        n_input = None if unseen_tokens is None else (most.input_tokens or 0) + unseen_tokens
        most = most.model_copy(update={"input_tokens": n_input})
        self.least_usd = _plus(self.least_usd, sampler.price_usd(least), n_least)
        self.most_usd = _plus(self.most_usd, sampler.price_usd(most), n_most)

    def include(self, other: Projection) -> None:
        """Count the calls of another projection too."""
        self.least_usd = _plus(self.least_usd, other.least_usd, 1)
        self.most_usd = _plus(self.most_usd, other.most_usd, 1)


def _plus(sum_usd: float | None, each_usd: float | None, number: int) -> float | None:
    return None if sum_usd is None or each_usd is None else sum_usd + each_usd * number
