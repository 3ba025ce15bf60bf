"""Calls for sampler tests, built as the engine builds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from labelkit.errors import ProviderError
from labelkit.records import Call, Completion, DrawKey, Message, Request, Task
from labelkit.seams import Sampler

Make = Callable[..., Sampler]
"""Builds a sampler on the fake server; keywords are sampler settings."""


def call(
    prompt: str = "What is 3 + 4?",
    *,
    model: str = "m",
    seed: int | None = None,
    sample_index: int = 0,
    stage: str = "candidate",
    endpoint: int = 0,
    task: Task | None = None,
    api: Any = "chat",
    response_schema: dict[str, Any] | None = None,
    tools: tuple[dict[str, Any], ...] = (),
    **parameters: Any,
) -> Call:
    messages: tuple[Message, ...] = ()
    if api == "chat":
        messages = ({"role": "user", "content": prompt},)
    text = None if api == "chat" else prompt
    request = Request(
        model=model,
        api=api,
        messages=messages,
        text=text,
        parameters=parameters,
        response_schema=response_schema,
        tools=tools,
    )
    task = task or Task(id="t1", prompt=prompt)
    digest = request.digest
    key = DrawKey(task_id=task.id, stage=stage, request=digest, sample_index=sample_index)
    return Call(
        request=request,
        task=task,
        key=key,
        messages=messages,
        text=text,
        seed=seed,
        endpoint=endpoint,
    )


async def reply(draw: Awaitable[Completion | None]) -> Completion:
    completion = await draw
    assert completion is not None
    return completion


async def failure(sampler: Sampler, **settings: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await sampler.sample(call(**settings))
    return raised.value
