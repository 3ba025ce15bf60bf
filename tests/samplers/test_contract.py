"""One contract for every transport that calls a server: what is sent, what is read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from labelkit.records import Usage
from labelkit.samplers.endpoints import worst_usage
from tests.openai_server import OpenAIServer, Rule, Script
from tests.samplers.calls import Make, call, reply

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"final_answer": {"type": "integer"}},
    "required": ["final_answer"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}


async def test_reply_carries_text_usage_and_who_served_it(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply="it is 7", served_model="m-2026")
    completion = await reply(make().sample(call()))
    sent = openai_server.calls[0]
    assert completion.text == "it is 7"
    assert completion.finish_reason == "stop"
    assert sent.usage is not None
    assert completion.usage == Usage(
        input_tokens=sent.usage["prompt_tokens"], output_tokens=sent.usage["completion_tokens"]
    )
    assert completion.model_served == "m-2026"
    assert completion.response_id == f"cmpl-{sent.key[:16]}-1"
    assert completion.cost_usd is None
    assert completion.reasoning is None
    assert completion.tool_calls == ()


async def test_only_what_was_set_is_sent_and_never_n(
    make: Make, openai_server: OpenAIServer
) -> None:
    sampler = make()
    await sampler.sample(call())
    body = openai_server.calls[0].body
    assert body == {"model": "m", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
    await sampler.sample(
        call(
            seed=11,
            tools=(TOOL,),
            temperature=0.7,
            top_p=0.9,
            top_k=5,
            min_p=0.05,
            repetition_penalty=1.1,
            max_tokens=64,
            stop=["\n\n"],
            logprobs=2,
            tool_choice="auto",
            chat_template_kwargs={"enable_thinking": False},
            extra_body={"cache_prompt": False},
        )
    )
    body = openai_server.calls[1].body
    body.pop("messages")
    assert body == {
        "model": "m",
        "seed": 11,
        "tools": [TOOL],
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "max_tokens": 64,
        "stop": ["\n\n"],
        "logprobs": True,
        "top_logprobs": 2,
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": False},
        "cache_prompt": False,
    }


async def test_the_base_seed_itself_is_not_sent(make: Make, openai_server: OpenAIServer) -> None:
    await make().sample(call(seed=None, max_tokens=9))
    sampler = make()
    one = call(seed=123)
    seeded = replace(one, request=one.request.model_copy(update={"parameters": {"seed": 1}}))
    await sampler.sample(seeded)
    assert "seed" not in openai_server.calls[0].body
    assert openai_server.calls[1].body["seed"] == 123


async def test_completions_api_sends_the_bare_prompt(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply="and then some more")
    completion = await reply(
        make().sample(call("Once upon", api="completions", max_tokens=2, top_k=3, seed=5))
    )
    sent = openai_server.calls[0]
    assert sent.path == "/v1/completions"
    assert sent.body == {
        "model": "m",
        "prompt": "Once upon",
        "max_tokens": 2,
        "top_k": 3,
        "seed": 5,
    }
    assert completion.text == "and then"
    assert completion.finish_reason == "length"
    assert completion.usage.output_tokens == 2


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_read_from_either_field(
    make: Make, openai_server: OpenAIServer, field: str
) -> None:
    openai_server.script = Script(reply="7", reasoning="three and four", reasoning_field=field)
    completion = await reply(make().sample(call()))
    assert (completion.text, completion.reasoning) == ("7", "three and four")


async def test_tool_calls_keep_their_text(make: Make, openai_server: OpenAIServer) -> None:
    asked = {"name": "add", "arguments": '{"a": 3,"b":4'}
    openai_server.script = Script(reply="", tool_calls=[asked], finish_reason="tool_calls")
    completion = await reply(make().sample(call(tools=(TOOL,))))
    (tool_call,) = completion.tool_calls
    assert (tool_call.name, tool_call.arguments) == ("add", '{"a": 3,"b":4')
    assert completion.finish_reason == "tool_calls"


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter", "some_new_word"])
async def test_finish_reasons_are_the_servers_own(
    make: Make, openai_server: OpenAIServer, finish: str
) -> None:
    openai_server.script = Script(finish_reason=finish)
    assert (await reply(make().sample(call()))).finish_reason == finish


async def test_schema_is_sent_as_strict_json_schema(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(reply='{"final_answer": 7}')
    await make().sample(call(response_schema=SCHEMA))
    assert openai_server.calls[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
    }


async def test_logprobs_come_back_as_given(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(reply="it is")
    completion = await reply(make().sample(call(logprobs=True)))
    assert completion.logprobs == {
        "content": [{"token": "it", "logprob": -0.5}, {"token": "is", "logprob": -0.5}]
    }


async def test_missing_usage_is_unknown_not_zero(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(usage="none")
    sampler = make(price={"input_per_mtok": 1.0, "output_per_mtok": 2.0})
    completion = await reply(sampler.sample(call()))
    assert completion.usage == Usage()
    assert completion.cost_usd is None


async def test_usage_details_are_read(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "completion_tokens_details": {"reasoning_tokens": 40},
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    )
    completion = await reply(make().sample(call()))
    assert completion.usage == Usage(
        input_tokens=100, output_tokens=50, reasoning_tokens=40, cached_tokens=64
    )


async def test_price_of_the_spec_decides_cost_and_worst_case(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(
        usage={"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    )
    sampler = make(price={"input_per_mtok": 2.0, "output_per_mtok": 8.0})
    assert (await reply(sampler.sample(call()))).cost_usd == pytest.approx(0.006)
    worst = sampler.price_usd(worst_usage(call("x" * 100, max_tokens=1000)))
    assert worst is not None
    # At least a token a byte of the prompt and all of max_tokens; not absurdly more.
    assert 0.0082 <= worst <= 0.0090
    assert sampler.price_usd(worst_usage(call())) is None
    assert make().price_usd(worst_usage(call(max_tokens=10))) is None


async def test_lone_surrogates_become_replacement_marks(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(rules=[Rule(fault="surrogates")])
    assert (await reply(make().sample(call()))).text == "lone \ufffd end"


async def test_null_content_is_an_empty_reply(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(rules=[Rule(fault="null_content")])
    assert (await reply(make().sample(call()))).text == ""


async def test_ten_megabyte_reply_arrives_whole(make: Make, openai_server: OpenAIServer) -> None:
    openai_server.script = Script(reply="y", rules=[Rule(fault="big")])
    assert (await reply(make().sample(call()))).text == "y " + "x" * 10_000_000


async def test_equal_calls_in_flight_are_calls_of_their_own(
    make: Make, openai_server: OpenAIServer
) -> None:
    openai_server.script = Script(latency_ms=50)
    sampler = make()
    texts = await asyncio.gather(
        *(reply(sampler.sample(call(sample_index=index))) for index in range(32))
    )
    assert len({completion.text for completion in texts}) == 32
    assert openai_server.count == 32
    assert openai_server.max_in_flight == 32


async def test_calls_go_to_the_replica_that_they_name(
    make: Make, openai_server: OpenAIServer
) -> None:
    async with OpenAIServer(Script(root="org/other")) as second:
        sampler = make(api_base=[openai_server.url, second.url])
        assert sampler.endpoints == 2
        await sampler.sample(call(endpoint=1))
        assert (openai_server.count, second.count) == (0, 1)
        openai_server.script = Script(served_model="m", root="org/m-7b")
        assert await sampler.served(0) == "org/m-7b"
        assert await sampler.served(1) == "org/other"


async def test_a_server_that_lists_no_models_is_no_trouble(make: Make) -> None:
    async with OpenAIServer() as other:
        assert await make(api_base=f"{other.root}/nothing").served(0) is None
    assert await make(api_base="http://127.0.0.1:9/v1").served(0) is None


async def test_check_names_what_cannot_be_sent(make: Make) -> None:
    sampler = make()
    assert sampler.check(call(temperature=0.5, max_tokens=5).request) == []
    (found,) = sampler.check(call(extra_body={"n": 4}).request)
    assert "extra_body.n" in found
    (found,) = sampler.check(call(api="completions", response_schema=SCHEMA).request)
    assert "response" in found
    for base in ("localhost:8000", "http://", "http://host:port/v1", "http://[bad"):
        (found,) = make(api_base=base).check(call().request)
        assert found.startswith("api_base:")
