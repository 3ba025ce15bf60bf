"""learning-zone, rl-select and verify-traces on small recorded runs; the gold is always `yes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.plan import Permissions
from labelkit.recipes.band import BandField
from tests.openai_server import OpenAIServer, Script
from tests.recorded import invoke, printed, recorded_spec
from tests.runs import Silent, go, read_lines, run, write_lines, write_spec

SIX = {
    "always": ["yes"] * 4,
    "never": ["no", "na", "nope", "nay"],
    "half": ["yes", "no", "yes", "no"],
    "rarely": ["no", "nay", "no", "yes"],
    "twin": ["maybe", "maybe", "maybe", "no"],
    "empty": ["yes", "", "no", "yes"],
}


def select(folder: Path, command: str, replies: Any = SIX, *overrides: str, **sections: Any) -> Any:
    spec = recorded_spec(folder, replies, **sections)
    return run(spec, folder / "run", *overrides, command=command)


def ids(folder: Path, name: str = "rows.jsonl") -> list[str]:
    return [row["id"] for row in read_lines(folder / "run" / name)]


def reasons(folder: Path) -> dict[str, str]:
    return {row["id"]: row["reason"] for row in read_lines(folder / "run" / "dropped.jsonl")}


def test_learning_zone_keeps_mixed_tasks_and_tells_the_rest_apart(tmp_path: Path) -> None:
    done = select(tmp_path, "learning-zone")
    assert ids(tmp_path) == ["half", "rarely", "empty"]
    assert reasons(tmp_path) == {"always": "saturated", "never": "hopeless", "twin": "hopeless"}
    assert done["detail"] == {
        "in_zone": 3,
        "saturated": 1,
        "hopeless": 2,
        "undecided": 0,
        "draws_adaptive_would_save": 4,
    }
    row = read_lines(tmp_path / "run" / "rows.jsonl")[0]
    assert list(row)[:9] == [
        "id",
        "prompt",
        "gold",
        "n_passed",
        "n_scored",
        "pass_rate",
        "pass_rate_interval",
        "p_in_zone",
        "outcomes",
    ]
    assert [each["state"] for each in row["outcomes"]] == ["passed", "failed"] * 2


def test_unscored_attempts_count_nowhere_and_too_few_decide_nothing(tmp_path: Path) -> None:
    replies = {"one": ["yes", "", ""], "none": ["", "", ""], "two": ["yes", "no", ""]}
    scorer = {"python": {"function": "scorer.py:score"}}
    (tmp_path / "scorer.py").write_text(
        "def score(attempt, gold):\n"
        "    if attempt.text == '-':\n"
        "        raise ValueError('cannot tell')\n"
        "    return attempt.text == gold\n"
    )
    replies = {name: [text or "-" for text in texts] for name, texts in replies.items()}
    spec = recorded_spec(tmp_path, replies, scorer=scorer, max_unscored=1.0)
    done = run(
        spec,
        tmp_path / "run",
        command="learning-zone",
        permissions=Permissions(allow_code=True),
    )
    assert ids(tmp_path) == ["two"]
    assert reasons(tmp_path) == {"one": "undecided", "none": "undecided"}
    assert done["tasks"] == {"in": 3, "kept": 1, "dropped": 0, "undecided": 2, "not_run": 0}


def test_contrast_shows_a_passing_and_a_failing_attempt(tmp_path: Path) -> None:
    select(tmp_path, "learning-zone", learning_zone={"contrast": True})
    row = read_lines(tmp_path / "run" / "rows.jsonl")[1]
    assert (row["passing"]["sample_index"], row["passing"]["text"]) == (3, "yes")
    assert (row["failing"]["sample_index"], row["failing"]["text"]) == (0, "no")
    assert row["failing"]["score"]["value"] == 0


def test_rl_select_tells_why_prompts_are_out(tmp_path: Path) -> None:
    select(tmp_path, "rl-select", rl_select={"band": "[0.3, 0.6]"})
    assert ids(tmp_path) == ["half", "empty"]
    assert reasons(tmp_path) == {
        "always": "always_solved",
        "never": "never_solved",
        "rarely": "out_of_band",
        "twin": "gold_conflict",
    }
    conflict = read_lines(tmp_path / "run" / "dropped.jsonl")[3]
    assert conflict["detail"] == "3 of 4: maybe"
    row = read_lines(tmp_path / "run" / "rows.jsonl")[0]
    assert list(row)[:9] == [
        "id",
        "prompt",
        "gold",
        "pass_rate",
        "n_passed",
        "n_scored",
        "pass_rate_interval",
        "p_in_band",
        "learnability",
    ]
    # c(n − c)/(n(n − 1)) of two of four.
    assert row["learnability"] == pytest.approx(2 * 2 / (4 * 3))
    assert row["bin"] == "(.2, .5]"


def test_replies_that_hold_no_answer_are_no_majority_for_another(tmp_path: Path) -> None:
    replies = {"a": ["the answer is unknown"] * 4}
    fields = {"id": "name", "prompt": "question", "gold": "size"}
    tasks = {"file": "replies.jsonl", "fields": fields}
    spec = recorded_spec(tmp_path, replies, tasks=tasks, scorer="numeric")
    rows = [{**row, "size": 3} for row in read_lines(tmp_path / "replies.jsonl")]
    write_lines(tmp_path / "replies.jsonl", rows)
    run(spec, tmp_path / "run", command="rl-select")
    assert reasons(tmp_path) == {"a": "never_solved"}


def test_min_probability_drops_what_is_not_sure_to_lie_in_the_band(tmp_path: Path) -> None:
    """P(.2 ≤ p ≤ .8) at eight draws is .67 for two passes and .95 for four (notes of DAPO-like
    selection; Jeffreys)."""
    replies = {
        "two": ["yes"] * 2 + ["no", "na", "nay", "nope", "not", "nix"],
        "four": ["yes"] * 4 + ["no", "na", "nay", "nope"],
    }
    section = {"band": [0.2, 0.8], "min_probability": 0.9}
    select(tmp_path, "rl-select", replies, rl_select=section)
    assert ids(tmp_path) == ["four"]
    assert reasons(tmp_path) == {"two": "uncertain"}
    row = read_lines(tmp_path / "run" / "rows.jsonl")[0]
    assert row["p_in_band"] == pytest.approx(0.95, abs=0.005)


def test_presets_have_their_published_bands(tmp_path: Path) -> None:
    replies = {"never": ["no", "nay"] * 4, "one": ["yes"] + ["no", "na"] * 3 + ["nay"]}
    replies["nine"] = ["yes"] * 7 + ["no"]
    replies["all"] = ["yes"] * 8
    kept = {}
    for preset in ("dapo", "skywork-or1", "open-r1", "polaris"):
        folder = tmp_path / preset
        done = select(folder, "rl-select", replies, rl_select={"preset": preset})
        assert done["detail"]["preset"]["source"]
        kept[preset] = ids(folder)
    assert kept == {
        "dapo": ["one", "nine"],
        "skywork-or1": ["one", "nine"],
        "open-r1": ["one", "nine"],
        "polaris": ["never", "one", "nine"],
    }


async def test_replicate_measures_borderline_prompts_again(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    arrived: dict[str, int] = {}

    def reply(ask: Any) -> str:
        arrived[ask.prompt] = arrived.get(ask.prompt, 0) + 1
        n = arrived[ask.prompt]
        lucky = {"lucky": n == 1, "true": n in (1, 5), "middle": n % 2 == 0}
        return "yes" if lucky[ask.prompt] else "no"

    openai_server.script = Script(reply=reply)
    tasks = [{"id": name, "prompt": name, "gold": "yes"} for name in ("lucky", "true", "middle")]
    spec = write_spec(
        tmp_path,
        tasks=tasks,
        sampler={"model": "direct/fake", "api_base": openai_server.url},
        scorer={"exact": {"answer": "whole"}},
        k=4,
        rl_select={"replicate": 2},
    )
    done = await go(spec, tmp_path / "run", command="rl-select")
    assert ids(tmp_path) == ["true", "middle"]
    assert reasons(tmp_path) == {"lucky": "not_replicated"}
    assert done["stages"]["replicate"]["calls"] == 4
    assert done["n_attempts"] == 12
    row = read_lines(tmp_path / "run" / "rows.jsonl")[0]
    assert row["replicate"] == {"n_passed": 1, "n_scored": 2, "pass_rate": 0.5}


def test_verify_traces_drops_each_sample_with_its_reason(tmp_path: Path) -> None:
    replies = {"a": ["yes", "no", "", "yes", "<think>yes"], "b": ["no"] * 5}
    section = {"dedupe": "exact"}
    done = select(tmp_path, "verify-traces", replies, verify_traces=section)
    assert [row["sample_index"] for row in read_lines(tmp_path / "run" / "rows.jsonl")] == [0]
    dropped = read_lines(tmp_path / "run" / "dropped.jsonl")
    assert [(line["id"], line["sample_index"], line["reason"]) for line in dropped[:4]] == [
        ("a", 1, "wrong_answer"),
        ("a", 2, "no_answer"),
        ("a", 3, "duplicate"),
        ("a", 4, "no_answer"),
    ]
    assert done["rows"] == {"candidates": 10, "kept": 1, "dropped": 9}
    assert done["tasks"]["dropped"] == 1


def test_max_per_task_caps_rows_and_leaves_the_pass_rate_alone(tmp_path: Path) -> None:
    section = {"max_per_task": 1}
    done = select(tmp_path, "verify-traces", {"a": ["yes"] * 4}, verify_traces=section)
    assert (done["kept"], done["dropped"], done["pass_rate"]) == (1, {"enough": 3}, 1.0)
    again = select(
        tmp_path / "two",
        "verify-traces",
        {"a": ["yes"] * 4},
        "adaptive=true",
        verify_traces=section,
    )
    assert (again["kept"], again["n_attempts"], again["pass_rate"]) == (1, 2, None)


def test_prop2diff_wants_more_of_what_fails_more(tmp_path: Path) -> None:
    """Of want = 4, the share of the pilot's failures: 0/4 → at least 1, 2/4 → 2, 3/4 → 3."""
    rest = ["yes"] * 8
    replies = {
        "easy": ["yes"] * 4 + rest,
        "fair": ["yes", "no", "yes", "no", *rest],
        "hard": ["no", "no", "yes", "no", *rest],
    }
    section = {"want": 4, "budget": {"kind": "prop2diff", "pilot": 4}}
    select(tmp_path, "verify-traces", replies, verify_traces=section)
    assert [ids(tmp_path).count(name) for name in ("easy", "fair", "hard")] == [1, 2, 3]
    lines = read_lines(tmp_path / "run" / "tasks.jsonl")
    assert [len(line["outcomes"]) for line in lines] == [4, 4, 8]


def test_the_reasoning_is_the_thinking_or_what_stands_before_the_answer(tmp_path: Path) -> None:
    replies = {"a": ["12 × 6 = 72.\nAnswer: 72", "<think>it is 72</think>72"]}
    spec = recorded_spec(tmp_path, replies, scorer={"numeric": {"answer": "auto"}})
    lines = read_lines(tmp_path / "replies.jsonl")
    lines[0]["gold"] = 72
    write_lines(tmp_path / "replies.jsonl", lines)
    run(spec, tmp_path / "run", command="verify-traces")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["reasoning"] for row in rows] == ["12 × 6 = 72.\nAnswer:", "it is 72"]
    assert [row["final_answer"] for row in rows] == ["72", "72"]


@pytest.mark.parametrize(
    ("command", "sections", "said"),
    [
        ("learning-zone", {"k": 1}, "k: 1: no task can both pass and fail"),
        ("rl-select", {"rl_select": {"band": "(0.8, 0.2)"}}, "holds no pass rate"),
        ("rl-select", {"rl_select": {"band": "[0.4, 0.45]"}}, "no pass rate of k = 4 draws"),
        ("rl-select", {"rl_select": {"preset": "dapo", "band": "(0, 1)"}}, "keep one"),
        ("rl-select", {"rl_select": {"top": 3}}, "go together"),
        ("rl-select", {"rl_select": {"replicate": 2}}, "recorded replies have none"),
        ("verify-traces", {"verify_traces": {"budget": {}}}, "shares out `want`"),
        (
            "verify-traces",
            {"verify_traces": {"want": 1, "budget": {"kind": "prop2diff", "pilot": 9}}},
            "more than k = 4",
        ),
        ("verify-traces", {"verify_traces": {"filters": {"forbid": ["("]}}}, r"forbid\[0\]"),
        ("verify-traces", {"verify_traces": {"filters": {"min_chars": 9, "max_chars": 1}}}, "abov"),
        ("rollout", {"canaries": {"wrong": [{"task": "none", "reply": "no"}]}}, "'none' is no"),
        ("rollout", {"canaries": {"anchor": []}}, "did you mean `anchors`"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_made(
    tmp_path: Path, command: str, sections: dict[str, Any], said: str
) -> None:
    spec = recorded_spec(tmp_path, SIX, **sections)
    with pytest.raises(SpecError, match=said):
        run(spec, tmp_path / "run", command=command)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "section",
    [{"rank_by": "learnability", "top": 2}, {"min_probability": 0.5}],
)
def test_nothing_is_ranked_by_the_rate_of_a_stopped_task(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    spec = recorded_spec(tmp_path, SIX, rl_select=section, adaptive=True)
    with pytest.raises(SpecError, match="does not go with `adaptive`"):
        run(spec, tmp_path / "run", command="rl-select")


def test_a_k_that_is_small_for_the_band_is_warned_of(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, SIX, rl_select={"band": [0.2, 0.8]})
    progress = Silent()
    run(spec, tmp_path / "run", command="rl-select", progress=progress)
    assert any("k = 4 is small for [0.2, 0.8]" in message for message in progress.messages)
    assert "warning: " in printed("check", spec)
    assert "k = 4 is small" in printed("check", spec)


def test_the_misplaced_share_shrinks_with_k() -> None:
    band = BandField.parse([0.2, 0.8])
    shares = [band.misplaced(k) for k in (8, 16, 64)]
    assert shares == sorted(shares, key=lambda share: -(share or 0))
    # With K = 8, counts 2 to 6 lie in the band, with P .67, .88, .95, .88, .67 under Jeffreys.
    weights = [0.0898, 0.0806, 0.0777, 0.0806, 0.0898]
    held = [0.67, 0.88, 0.95, 0.88, 0.67]
    expected = 1 - sum(w * p for w, p in zip(weights, held, strict=True)) / sum(weights)
    assert shares[0] == pytest.approx(expected, abs=0.01)
    assert BandField.parse("[0.4, 0.45]").misplaced(4) is None


def test_adaptive_is_refused_where_every_draw_is_needed(tmp_path: Path) -> None:
    spec = recorded_spec(tmp_path, SIX)
    done = invoke("rollout", spec, "-o", tmp_path / "run", "--adaptive")
    assert "not for rollout" in str(done.exception)


def test_a_task_may_not_take_a_canarys_id(tmp_path: Path) -> None:
    canaries = {"wrong": [{"task": "canary/x", "reply": "no"}]}
    spec = recorded_spec(tmp_path, {"canary/x": ["yes"]}, canaries=canaries)
    with pytest.raises(SpecError, match="only canaries may"):
        run(spec, tmp_path / "run")


def test_a_wrong_reply_that_does_not_fit_the_schema_proves_nothing(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        tasks=[{"id": "a", "prompt": "1 + 1?", "gold": 2}],
        sampler={"model": "direct/x", "api_base": "http://x/v1", "response": {"answer": "int"}},
        scorer={"numeric": {"answer": {"field": "answer"}}},
        canaries={"wrong": [{"task": "a", "reply": "3"}]},
    )
    with pytest.raises(SpecError, match="does not fit the response schema"):
        run(spec, tmp_path / "run")


def test_canaries_stand_outside_rows_sums_and_rates(tmp_path: Path) -> None:
    canaries = {
        "anchors": {
            "file": "anchors.jsonl",
            "fields": {"id": "name", "prompt": "question", "gold": "gold"},
        },
        "wrong": [{"task": "half", "reply": "no"}],
    }
    anchors = [
        {"name": name, "question": name, "gold": "yes", "replies": ["yes"] * n}
        for name, n in (("sure", 4), ("short", 2))
    ]
    write_lines(tmp_path / "anchors.jsonl", anchors)
    spec = recorded_spec(tmp_path, SIX, canaries=canaries)
    done = run(spec, tmp_path / "run")
    # Two replies of four are missing, so `short` could not be decided: that fails, too.
    assert {each["id"]: each["holds"] for each in done["canaries"]["each"]} == {
        "canary/anchor/sure": True,
        "canary/anchor/short": None,
        "canary/wrong/1/half": True,
    }
    assert (done["n_tasks"], done["n_attempts"], done["draws"]["planned"]) == (6, 24, 24)
    assert all(not each.startswith("canary/") for each in ids(tmp_path, "tasks.jsonl"))
    assert done["exit_code"] == 3
