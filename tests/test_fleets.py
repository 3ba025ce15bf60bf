"""How long a spec lets draws and runs wait for an endpoint that does not serve them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.plan import Permissions, bind
from labelkit.spec import load
from tests.openai_server import OpenAIServer, Rule, Script
from tests.runs import go, write_spec

TASKS = [{"id": f"t{n}", "prompt": f"p{n}", "gold": "yes"} for n in range(8)]
DEAD = "http://127.0.0.1:9/v1"


def spec_file(folder: Path, url: str, *, scorer: Any = "contains", k: int = 4, **more: Any) -> Path:
    sampler = {"model": "direct/fake", "api_base": url, **more}
    return write_spec(folder, tasks=TASKS, sampler=sampler, scorer=scorer, k=k)


async def test_a_run_gives_up_an_endpoint_that_is_down_for_give_up_s(tmp_path: Path) -> None:
    began_s = time.monotonic()
    done = await go(spec_file(tmp_path, DEAD, give_up_s=0.5, max_tries=50), tmp_path / "run")
    assert time.monotonic() - began_s < 30
    assert done["stopped_early"] == "breaker"
    assert done["exit_code"] == 4


async def test_roles_at_one_endpoint_have_the_longer_patience_of_them(tmp_path: Path) -> None:
    verdict = '{"reason": "so it is", "passed": true}'
    script = Script(reply=verdict, rules=[Rule(fault="server_error", first_tries=1)])
    async with OpenAIServer(script) as server:
        judge = {
            "model": "direct/fake",
            "api_base": server.url,
            "rubric": "Is it?",
            "total_timeout_s": 60.0,
        }
        spec = spec_file(
            tmp_path, server.url, scorer={"judge": judge}, total_timeout_s=0.001, k=1, seed=1
        )
        done = await go(spec, tmp_path / "run")
    assert (done["n_passed"], done["unscored"]) == (len(TASKS), {})


async def test_a_draw_is_not_tried_again_later_than_total_timeout_s(tmp_path: Path) -> None:
    script = Script(rules=[Rule(fault="server_error")])
    async with OpenAIServer(script) as server:
        spec = spec_file(tmp_path, server.url, total_timeout_s=0.001, max_tries=50, k=1)
        began_s = time.monotonic()
        done = await go(spec, tmp_path / "run")
        assert time.monotonic() - began_s < 10
        assert len(server.calls) <= 2 * len(TASKS)
    assert done["unscored"] == {"provider_error": len(TASKS)}


@pytest.mark.parametrize(
    "scorer", ["contains", {"judge": {"model": "direct/j", "rubric": "Is it?"}}]
)
def test_patience_is_in_neither_fingerprint(tmp_path: Path, scorer: Any) -> None:
    def identity(**patience: Any) -> Any:
        judged = scorer
        if isinstance(scorer, dict):
            judged = {"judge": {**scorer["judge"], "api_base": DEAD, **patience}}
        spec = spec_file(tmp_path, DEAD, scorer=judged, **patience)
        plan = bind(load(spec), "rollout", Permissions())
        return plan.policy_fingerprint, plan.env_parts("tasks")

    assert identity(give_up_s=5.0, total_timeout_s=7.0) == identity()


@pytest.mark.parametrize("name", ["give_up_s", "total_timeout_s"])
@pytest.mark.parametrize("value", [0, -1.0, "soon", True])
def test_patience_is_a_number_of_seconds_above_zero(tmp_path: Path, name: str, value: Any) -> None:
    spec = spec_file(tmp_path, DEAD, **{name: value})
    with pytest.raises(SpecError) as caught:
        bind(load(spec), "rollout", Permissions())
    assert [fault.field for fault in caught.value.faults] == [f"sampler.{name}"]
