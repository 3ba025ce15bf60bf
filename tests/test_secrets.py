"""Keys reach the provider and nothing else: no file, no log, no output, no error of any run.

Every canary contains one mark that nothing else contains; the server says what it was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.openai_server import OpenAIServer, Rule, Script
from tests.openai_server.script import FaultName
from tests.runs import labelkit, write_spec

MARK = "c4n4ry"
KEY = f"sk-{MARK}-key-00000000"
PASSWORD = f"{MARK}/p@ss:word"
HEADER = f"{MARK}-header-1111"
ECHO = f"you sent {{authorization}} and {KEY}"
ENVIRONMENT: dict[str, Any] = {
    "LABELKIT_API_KEY": KEY,
    "OPENAI_API_KEY": f"sk-{MARK}-openai-4444",
    "ANTHROPIC_API_KEY": f"sk-ant-{MARK}-2222",
    "MY_SECRET": f"{MARK}-mine-3333",
    "LITELLM_LOG": "DEBUG",
}


@pytest.fixture(params=["direct/fake", "openai/fake"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(Script(reply="the answer is {key}")) as each:
        yield each


def with_userinfo(url: str) -> str:
    return url.replace("://", f"://user:{quote(PASSWORD, safe='')}@")


def spec_file(folder: Path, model: str, api_base: str, **sampler: Any) -> Path:
    return write_spec(
        folder,
        tasks=[{"id": f"t{i}", "prompt": f"q{i}", "gold": "x"} for i in range(4)],
        sampler={"model": model, "api_base": api_base, "max_tries": 1, **sampler},
        max_unscored=1.0,
    )


async def said(*arguments: object) -> tuple[int, str]:
    """Exit code and all output of a command with every canary in its environment."""
    done = await asyncio.to_thread(lambda: labelkit(*arguments, **ENVIRONMENT))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def assert_clean(text: str, folder: Path) -> None:
    assert MARK not in text
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".yaml":
            assert MARK.encode() not in path.read_bytes(), path
            assert PASSWORD.encode() not in path.read_bytes(), path


PASSING: tuple[FaultName, ...] = (
    "bad_request",
    "server_error",
    "garbage",
    "rate_limit",
    "content_filter",
)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ("direct/fake", "environment"),
        ("direct/fake", "userinfo"),
        ("direct/fake", "set"),
        ("openai/fake", "environment"),
        ("openai/fake", "userinfo"),
        ("openai/fake", "headers"),
    ],
)
async def test_no_canary_leaves_a_run(
    tmp_path: Path, server: OpenAIServer, model: str, where: str
) -> None:
    echo = ECHO + {"userinfo": f" and {PASSWORD}", "environment": ""}.get(where, f" and {HEADER}")
    rules = [Rule(fault=fault, nth=[number], echo=echo) for number, fault in enumerate(PASSING, 2)]
    server.script = server.script.model_copy(
        update={"rules": [*rules, Rule(fault="unauthorized", after=9, echo=echo)]}
    )
    base = with_userinfo(server.url) if where == "userinfo" else server.url
    headers = {"headers": {"X-Team": HEADER, "Authorization": f"Bearer {HEADER}"}}
    spec = spec_file(tmp_path, model, base, **(headers if where == "headers" else {}))
    command = ["rollout", spec, "-o", tmp_path / "run", "-k", 3]
    if where == "set":
        command += ["--set", f"sampler.headers.Authorization=Bearer {HEADER}",
                    "--set", f"sampler.api_base={with_userinfo(server.url)}"]  # fmt: skip
    code, output = await said(*command, "--json")
    assert code == 4, output
    assert server.count > 8
    sent = {call.headers["authorization"].removeprefix("Bearer ") for call in server.calls}
    if where == "userinfo":
        assert all(each.startswith("Basic ") for each in sent)
    else:
        assert sent == {KEY if where == "environment" else HEADER}
    looks = [["errors"], ["show"], ["show", "t0"], ["show", "t1", "0"], ["show", "t2", "0"]]
    for verb, *what in looks:
        output += (await said(verb, tmp_path / "run", *what))[1]
    assert "[secret]" in output
    assert_clean(output, tmp_path)


async def test_no_canary_leaves_a_look_before_the_run(tmp_path: Path, server: OpenAIServer) -> None:
    headers = {"X-Team": HEADER}
    spec = spec_file(tmp_path, "direct/fake", with_userinfo(server.url), headers=headers)
    output = ""
    for command in (["check", spec], ["check", spec, "--probe"], ["rollout", spec, "--dry-run"]):
        code, text = await said(*command)
        assert code == 0, text
        output += text
    assert server.count == 1
    assert_clean(output, tmp_path)


async def test_a_gone_endpoint_is_named_without_its_password(tmp_path: Path, model: str) -> None:
    spec = spec_file(tmp_path, model, with_userinfo("http://127.0.0.1:9/v1"))
    code, output = await said("rollout", spec, "-o", tmp_path / "run", "--limit", 1)
    assert code == 0
    output += (await said("errors", tmp_path / "run"))[1]
    assert "connection_error" in output
    assert_clean(output, tmp_path)


@pytest.mark.parametrize(
    "sampler",
    [
        {"api_base": f"ftp://user:{MARK}pw@host/v1"},
        {"api_base": f"https://user:{MARK}pw@host:port/v1"},
        {"api_base": {f"https://user:{MARK}pw@host/v1": 1}},
        {"api_base": [f"user:{MARK}pw@host/v1"]},
        {"api_base": f"https://user:{MARK}/p@ss@host/v1"},
        {"headers": f"Authorization: Bearer {HEADER}"},
        {"headers": [f"Authorization: Bearer {HEADER}"]},
        {"headers": {"Authorization": {"Bearer": HEADER}}},
        {"headers": {"Authorization": [HEADER]}},
        {"header": {"Authorization": HEADER}},
        {"api_key": KEY},
        {"extra_body": {"api_key": KEY}},
        {"timeout_s": KEY},
        {"temperature": KEY},
    ],
)
async def test_bad_specs_are_told_without_their_secrets(
    tmp_path: Path, sampler: dict[str, Any]
) -> None:
    values: dict[str, Any] = {"model": "direct/fake", "api_base": "http://127.0.0.1:9/v1"}
    spec = write_spec(tmp_path, tasks=[{"prompt": "q", "gold": "x"}], sampler={**values, **sampler})
    for verb in ("check", "rollout"):
        code, output = await said(verb, spec, *(["-o", tmp_path / "run"] * (verb == "rollout")))
        if verb == "rollout":
            assert code == 2, output
        assert_clean(output, tmp_path)
    assert not (tmp_path / "run").exists()


async def test_a_changed_endpoint_is_no_news_and_a_changed_model_names_no_key(
    tmp_path: Path, server: OpenAIServer, model: str
) -> None:
    spec = spec_file(tmp_path, model, with_userinfo(server.url))
    assert (await said("rollout", spec, "-o", tmp_path / "run"))[0] == 0
    changes = ["--set", f"sampler.headers.X-Other={HEADER}", "--set", "sampler.temperature=0.3"]
    code, output = await said("rollout", spec, "-o", tmp_path / "run", *changes)
    assert code == 2
    assert "temperature" in output
    assert_clean(output, tmp_path)
    identity = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert "user" not in json.dumps(identity["spec"]["sampler"])
