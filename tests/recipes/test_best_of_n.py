"""best-of-n against a scripted writer and judge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from labelkit.errors import SpecError
from tests.openai_server import Ask, OpenAIServer
from tests.recipes.judged import is_judge, script, spec_file
from tests.runs import read_lines, run

BEST = "best-of-n"


async def go(spec: Path, folder: Path, *overrides: str, **options: Any) -> Any:
    return await asyncio.to_thread(run, spec, folder, *overrides, command=BEST, **options)


def in_turn(*texts: str) -> Any:
    """Candidates told apart by their order of arrival for a prompt."""
    arrived: dict[str, int] = {}

    def candidate(ask: Ask) -> str:
        arrived[ask.prompt] = arrived.get(ask.prompt, 0) + 1
        return texts[(arrived[ask.prompt] - 1) % len(texts)]

    return candidate


def worth(text: str) -> int:
    """Candidates say themselves what they are worth."""
    return int(text.split()[-1])


async def test_keeps_the_best_and_the_earliest_of_equals(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("a 3", "bb 5", "ccc 5"), worth)
    done = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["id"] for row in rows] == ["t1", "t2"]
    for row in rows:
        assert list(row)[:6] == [
            "id",
            "prompt",
            "chosen",
            "chosen_score",
            "all_scores",
            "judge_reason",
        ]
        first = next(i for i, score in enumerate(row["all_scores"]) if score == 5)
        told = row["provenance"]["candidates"]
        assert (row["sample_index"], row["chosen"]) == (first, told[first]["text"])
        assert sorted(row["all_scores"]) == [3, 5, 5]
        assert row["judge_reason"] == "worth 5"
        assert [each["detail"]["votes"][0]["score"] for each in told] == row["all_scores"]
    assert done["detail"]["gain_of_best_over_mean"] == pytest.approx(5 - 13 / 3)
    assert done["stages"]["judge"]["calls"] == 6


async def test_the_best_of_bad_candidates_is_not_kept(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("a 3", "b 2", "c 1"), worth)
    done = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run")
    assert done["kept"] == 0
    assert done["dropped"] == {"under_bar": 2}
    assert done["detail"]["score_histogram"] == {"1": 2, "2": 2, "3": 2}
    again = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run", "best_of_n.bar=3")
    assert (again["kept"], len(openai_server.calls)) == (2, 12)


async def test_a_judge_that_saturates_is_said_to(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("one", "two", "three"), lambda _: 5)
    done = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run")
    assert done["detail"]["saturation"] == 1.0
    assert "stronger judge" in done["detail"]["warning"]
    assert all(r["all_scores"] == [5, 5, 5] for r in read_lines(tmp_path / "run" / "rows.jsonl"))


async def test_a_broken_constraint_is_failed_by_code_and_never_judged(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("fine 4", "much too long 5", "fine 4"), worth)
    best = {"bar": 4, "constraints": {"words": {"max": 2}}}
    done = await go(spec_file(tmp_path, openai_server.url, best_of_n=best), tmp_path / "run")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["chosen"] for row in rows] == ["fine 4", "fine 4"]
    assert sorted(map(str, rows[0]["all_scores"])) == ["4.0", "4.0", "None"]
    assert done["stages"]["judge"]["calls"] == 4
    assert done["detail"]["saturation"] == 0.0


async def test_a_judge_that_returns_nonsense_is_no_zero(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("a 9", "b 9", "c 9"), worth)
    done = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run", "max_unscored=1.0")
    assert done["n_unscored"] == 6
    assert done["tasks"]["undecided"] == 2
    assert done["detail"]["score_histogram"] == {}


async def test_a_cut_candidate_is_never_chosen(tmp_path: Path, openai_server: OpenAIServer) -> None:
    openai_server.script = script(in_turn("one two three 5"), worth)
    spec = spec_file(tmp_path, openai_server.url)
    done = await go(spec, tmp_path / "run", "sampler.max_tokens=2", "best_of_n.bar=1")
    assert done["kept"] == 0
    assert done["dropped"] == {"no_candidate": 2}


async def test_pairs_take_the_worst_that_is_like_in_length_and_below_by_the_margin(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    texts = ("long text that is far longer than the others 1", "bb 2", "cc 4", "dd 5")
    openai_server.script = script(in_turn(*texts), worth)
    best = {"bar": 4, "pairs": True, "margin": 2}
    spec = spec_file(tmp_path, openai_server.url, best_of_n=best, k=4)
    await go(spec, tmp_path / "run")
    for row in read_lines(tmp_path / "run" / "rows.jsonl"):
        assert (row["chosen"], row["rejected"], row["rejected_score"]) == ("dd 5", "bb 2", 2.0)
    done = await go(spec, tmp_path / "run", "best_of_n.margin=3.5")
    assert done["detail"]["n_no_pair"] == 2
    assert {row["rejected"] for row in read_lines(tmp_path / "run" / "rows.jsonl")} == {None}


async def test_pairwise_finds_the_better_where_pointwise_saturates(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    def score(text: str) -> int:
        return worth(text)

    def judge(ask: Ask) -> str:
        if is_judge(ask) and "REPLY A" not in ask.prompt:
            return '{"reason": "all the same to me", "score": 5}'
        return str(base(ask))

    made = script(in_turn("aa 3", "bb 5", "cc 4"), score)
    base: Any = made.reply
    openai_server.script = made.model_copy(update={"reply": judge})
    best = {"bar": 4, "mode": "pairwise", "pairs": True}
    done = await go(spec_file(tmp_path, openai_server.url, best_of_n=best), tmp_path / "run")
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert [row["chosen"] for row in rows] == ["bb 5", "bb 5"]
    assert {row["rejected"] for row in rows} <= {"aa 3", "cc 4"}
    assert done["stages"]["judge"]["calls"] == 2 * (3 + 2 * 2)
    assert done["detail"]["matches"] == 4


async def test_a_judge_that_prefers_the_first_place_makes_ties(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("aa", "bb", "cc"), lambda _: 5)
    best = {"bar": 4, "mode": "pairwise"}
    done = await go(spec_file(tmp_path, openai_server.url, best_of_n=best), tmp_path / "run")
    assert done["detail"]["ties"] == done["detail"]["matches"] == 4
    assert {row["sample_index"] for row in read_lines(tmp_path / "run" / "rows.jsonl")} == {0}


async def test_longer_is_better_shows_in_the_correlation(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("a" * 10, "a" * 20, "a" * 30), lambda t: len(t) // 10)
    done = await go(spec_file(tmp_path, openai_server.url), tmp_path / "run", "best_of_n.bar=1")
    assert done["detail"]["score_length_correlation"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ({"bar": 6}, "best_of_n.bar: 6 is outside the scale, 1 to 5"),
        ({"bar": 0.5}, "best_of_n.bar: 0.5 is outside the scale, 1 to 5"),
        ({"bar": 4, "judge": None, "scorer": "numeric"}, "bar: 4 is outside the scale, 0 to 1"),
        ({"bar": 4, "margin": 1}, "`margin` is for pairs"),
        ({"bar": 4, "scorer": "numeric"}, "keep one"),
        ({"bar": 1, "judge": None, "scorer": "numeric", "mode": "pairwise"}, "best_of_n.mode"),
        ({"bar": 1, "judge": None, "constraints": {"words": 3}}, "nothing that scores"),
        ({"bar": 4, "constraints": {"wrods": 3}}, "did you mean `words`"),
        ({"judge": {"model": "direct/x"}}, "`bar` is missing"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_spent(
    tmp_path: Path, best: dict[str, Any], said: str
) -> None:
    spec = spec_file(tmp_path, "http://127.0.0.1:1/v1", best_of_n=best)
    with pytest.raises(SpecError, match=said):
        run(spec, tmp_path / "run", command=BEST)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("planted", [{"reply": "bad"}, {"auto": "constraints"}])
async def test_a_judge_that_gives_the_top_score_to_everything_fails_its_canary(
    tmp_path: Path, openai_server: OpenAIServer, planted: dict[str, str]
) -> None:
    openai_server.script = script(in_turn("aa", "bb", "cc"), lambda _: 5)
    canaries = {"bad_candidates": [{"task": "t1", **planted}]}
    best = {"bar": 4, "constraints": {"words": {"max": 5}}}
    spec = spec_file(tmp_path, openai_server.url, best_of_n=best, canaries=canaries)
    done = await go(spec, tmp_path / "run")
    assert done["exit_code"] == 3
    [canary] = done["canaries"]["each"]
    assert canary["id"] == "canary/bad_candidate/1/t1"
    assert (canary["holds"], canary["evidence"]["score"]) == (False, 5.0)
    assert done["n_attempts"] == 6
    assert done["stages"]["canary"]["calls"] == (1 if "reply" in planted else 2)


async def test_a_judge_that_tells_bad_from_good_passes_its_canary(
    tmp_path: Path, openai_server: OpenAIServer
) -> None:
    openai_server.script = script(in_turn("aa", "bb"), lambda text: 1 if text == "bad" else 5)
    canaries = {"bad_candidates": [{"task": "t1", "reply": "bad"}]}
    done = await go(spec_file(tmp_path, openai_server.url, canaries=canaries), tmp_path / "run")
    assert done["exit_code"] == 0
    assert done["canaries"]["held"] == 1
