"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

from tests.openai_server import OpenAIServer

# A busy machine is no fault of the code.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


@pytest.fixture
async def openai_server() -> AsyncIterator[OpenAIServer]:
    """A fake provider of one's own; set `openai_server.script` to tell it what to answer."""
    async with OpenAIServer() as server:
        yield server
