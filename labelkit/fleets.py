"""Which limits the calls of each role are under: one set an endpoint and key, whoever calls it.

A policy and a judge at one server share its concurrency, its quota and its breaker.
"""

from __future__ import annotations

from collections.abc import Mapping

from labelkit.limits import Budget, Fleet, Halt, Limits, LimitSettings
from labelkit.limits.halt import Clock
from labelkit.samplers import SamplerSettings
from labelkit.samplers.endpoints import shown_urls
from labelkit.seams import Sampler


def open_fleets(
    settings: Mapping[str, SamplerSettings],
    samplers: Mapping[str, Sampler],
    halt: Halt,
    budget: Budget,
    clock: Clock,
) -> dict[str, Fleet]:
    """A fleet a role. Where roles share an endpoint it has the largest concurrency and the longest
    patience that one of them gives it, and the smallest quota."""
    places = {role: _places(settings[role], each) for role, each in samplers.items()}
    limits = {
        place: Limits(
            _shared([(settings[role], samplers[role]) for role in places if place in places[role]]),
            halt,
            budget,
            clock,
        )
        for place in dict.fromkeys(place for named in places.values() for place in named)
    }
    return {role: Fleet([limits[place] for place in named]) for role, named in places.items()}


def _places(settings: SamplerSettings, sampler: Sampler) -> list[str]:
    """What tells a sampler's endpoints from others': URLs, or the model where the provider's own
    address is used. Keys are one a URL, as the environment holds them."""
    urls = shown_urls(settings)
    if len(urls) == sampler.endpoints:
        return list(urls)
    return [f"{settings.model} {n}" for n in range(sampler.endpoints)]


def _shared(roles: list[tuple[SamplerSettings, Sampler]]) -> LimitSettings:
    slots = [sampler.slots for _, sampler in roles if sampler.slots is not None]
    rpms = [each.rpm for each, _ in roles if each.rpm is not None]
    tpms = [each.tpm for each, _ in roles if each.tpm is not None]
    return LimitSettings(
        concurrency=max(slots, default=None),
        adaptive=all(each.adaptive_concurrency for each, _ in roles),
        rpm=min(rpms, default=None),
        tpm=min(tpms, default=None),
        max_tries=max(each.max_tries for each, _ in roles),
        total_timeout_s=max(each.total_timeout_s for each, _ in roles),
        give_up_s=max(each.give_up_s for each, _ in roles),
    )
