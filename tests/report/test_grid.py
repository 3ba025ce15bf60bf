"""The grid and the histogram."""

from __future__ import annotations

from rich.cells import cell_len

from labelkit.report.grid import Histogram, cell, glyphs, kind


def test_a_glyph_an_attempt() -> None:
    assert glyphs(["passed", "failed", "unscored"], n_not_run=2) == "█░▲··"


def test_many_attempts_stay_one_line() -> None:
    row = glyphs(["passed"] * 100_000)
    assert row.endswith("…")
    assert len(row) == 41


def test_kinds_are_told_by_raw_counts() -> None:
    kinds = [kind(4, 4), kind(1, 4), kind(0, 4), kind(0, 0)]
    assert kinds == ["saturated", "mixed", "hopeless", "undecided"]


def test_wide_and_hostile_ids_keep_the_columns() -> None:
    for name in ("短い", "a\x1b[2Jb", "x" * 99, "漢" * 99):
        assert cell_len(cell(name, 10)) == 10


def test_histogram_counts_tasks_by_attempts_passed() -> None:
    histogram = Histogram()
    for n_passed, n_tasks in enumerate((432, 290, 236, 205, 156)):
        for _ in range(n_tasks):
            histogram.add(n_passed, 4)
    title, *bars, kinds = histogram.lines()
    assert title == "1,319 tasks by attempts passed"
    assert [bar.split()[:2] for bar in bars] == [
        ["0/4", "432"], ["1/4", "290"], ["2/4", "236"], ["3/4", "205"], ["4/4", "156"],
    ]  # fmt: skip
    assert kinds == "156 saturated, 731 mixed, 432 hopeless"
    lengths = [bar.count("█") for bar in bars]
    assert lengths == sorted(lengths, reverse=True)


def test_histogram_of_unequal_attempts_uses_bins_and_counts_the_undecided() -> None:
    histogram = Histogram()
    for n_passed, n_scored in [(0, 3), (1, 4), (60, 64), (64, 64), (0, 0)]:
        histogram.add(n_passed, n_scored)
    lines = histogram.lines()
    assert lines[-1] == "1 saturated, 2 mixed, 1 hopeless, 1 undecided"
    assert len(lines) == 2 + 6
