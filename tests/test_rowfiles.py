"""Rows of foreign files: every format, every fault with its line, nothing lost in silence."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from labelkit.errors import Fault, SpecError
from labelkit.rowfiles import MISSING, RowFile, SourceRow, lookup

LONG = 6747742486863689476416508396372901


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    if name.endswith(".gz"):
        raw = gzip.compress(raw)
    if name.endswith(".zst"):
        raw = zstandard.ZstdCompressor().compress(raw)
    path.write_bytes(raw)
    return path


def rows(folder: Path, name: str, content: bytes | str) -> list[SourceRow | Fault]:
    return list(RowFile(write(folder, name, content), name))


def only_fault(found: list[SourceRow | Fault]) -> str:
    [fault] = [row for row in found if isinstance(row, Fault)]
    return str(fault)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("t.jsonl", f'{{"a": {LONG}}}\n\n{{"a": "x\u2028y"}}\r\n   \n{{"a": null}}', [1, 3, 5]),
        ("t.json", f'[{{"a": {LONG}}}, {{"a": "x\u2028y"}}, {{"a": null}}]', [1, 2, 3]),
    ],
)
def test_json_rows_are_exact(
    tmp_path: Path, name: str, content: str, lines: list[int], ending: str
) -> None:
    values: list[dict[str, Any]] = [{"a": LONG}, {"a": "x\u2028y"}, {"a": None}]
    expected = [SourceRow(line, value) for line, value in zip(lines, values, strict=True)]
    assert rows(tmp_path, name + ending, content) == expected


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_csv_cells_stay_text_and_rows_have_their_line(tmp_path: Path, ending: str) -> None:
    content = f'\ufeffq,a\r\n"two\nlines, ""quoted""",{LONG}\r\n\r\nx\u2028y,012\n'
    assert rows(tmp_path, f"t.csv{ending}", content) == [
        SourceRow(2, {"q": 'two\nlines, "quoted"', "a": str(LONG)}),
        SourceRow(5, {"q": "x\u2028y", "a": "012"}),
    ]


def test_a_csv_cell_may_be_long(tmp_path: Path) -> None:
    [row] = rows(tmp_path, "t.csv", "a\n" + "x" * 1_000_000)
    assert isinstance(row, SourceRow)
    assert len(str(row.values["a"])) == 1_000_000


def test_parquet_values_become_json(tmp_path: Path) -> None:
    from datetime import date
    from decimal import Decimal

    path = tmp_path / "t.parquet"
    table = pyarrow.table(
        {
            "prompt": pyarrow.array(
                [[{"role": "user", "content": "hi"}]],
            ),
            "big": pyarrow.array([Decimal(LONG)], pyarrow.decimal128(38, 0)),
            "price": pyarrow.array([Decimal("1.50")], pyarrow.decimal128(5, 2)),
            "missing": pyarrow.array([float("nan")]),
            "day": pyarrow.array([date(2024, 5, 6)]),
            "picture": pyarrow.array([b"\xff"]),
            "image": pyarrow.array([{"bytes": b"\xff", "path": "x"}]),
        }
    )
    pyarrow.parquet.write_table(table, path)
    file = RowFile(path)
    assert file.columns == ["prompt", "big", "price", "missing", "day"]
    assert list(file) == [
        SourceRow(
            1,
            {
                "prompt": [{"role": "user", "content": "hi"}],
                "big": LONG,
                "price": "1.50",
                "missing": None,
                "day": "2024-05-06",
            },
        )
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.jsonl", '{"a": 1}\n{"a": 2,}\n', "t.jsonl:2: is not JSON"),
        ("t.jsonl", '{"a": NaN}', "t.jsonl:1: is not JSON: NaN is not JSON"),
        ("t.jsonl", '{"a": -Infinity}', "t.jsonl:1: is not JSON: -Infinity is not JSON"),
        ("t.jsonl", '{"a": 1e999}', "t.jsonl:1: is not JSON: 1e999 is too large"),
        ("t.jsonl", '{"a": 1, "a": 2}', "t.jsonl:1: is not JSON: duplicate key 'a'"),
        ("t.jsonl", "[" * 100_000, "t.jsonl:1: is not JSON: nested too deeply"),
        ("t.jsonl", '{"a": ' + "9" * 5000 + "}", "t.jsonl:1: is not JSON"),
        ("t.jsonl", '\n"text"\n', "t.jsonl:2: is not a JSON object: 'text'"),
        ("t.jsonl", "[1]", "t.jsonl:1: is not a JSON object: [1]"),
        (
            "t.jsonl",
            b'{"a": "\xff"}',
            "t.jsonl:1: is not UTF-8 text (byte 8) (save it as UTF-8)",
        ),
        ("t.jsonl", '{"a": 1} {"a": 2}', "t.jsonl:1: is not JSON: Extra data"),
        ("t.json", '{"a": 1}', "t.json:1: is not a JSON array (write an array"),
        ("t.json", '[{"a": 1},\n{"a": }]', "t.json:2: is not JSON"),
        ("t.json", '[{"a": 1}, 5]', "t.json:2: is not a JSON object: 5"),
        ("t.json", "", "t.json:1: is not JSON"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "t.csv:3: has 3 cells where the header has 2 (put"),
        ("t.csv", "a,b\n1\n", "t.csv:2: has 1 cells where the header has 2 (put"),
        ("t.csv", "a,a\n1,2\n", "t.csv:1: has the column 'a' twice (give each its own name)"),
        ("t.csv", 'a,b\n1,"2\n', "t.csv:2: is not csv: unexpected end of data"),
        ("t.csv", 'a,b\n1,"2"x\n', "t.csv:2: is not csv"),
        ("t.csv", b"a\n\xff\n", "is not UTF-8 text (save it as UTF-8)"),
        ("t.csv", b"\xfe\xff\0a\0\n\0b", "t.csv: is UTF-16 text"),
        ("t.json.gz", '[{"a": 1}]'.encode("utf-16"), "t.json.gz: is UTF-16 text"),
    ],
)
def test_a_bad_row_is_a_fault_with_its_line(
    tmp_path: Path, name: str, content: bytes | str, said: str
) -> None:
    assert said in only_fault(rows(tmp_path, name, content))


def test_rows_after_a_bad_one_are_read(tmp_path: Path) -> None:
    found = rows(tmp_path, "t.jsonl", '{"a": 1}\nbad\n{"a": 2}\n')
    assert [type(row) for row in found] == [SourceRow, Fault, SourceRow]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_cut_compressed_file_is_a_fault_and_not_a_short_one(tmp_path: Path, ending: str) -> None:
    lines = "".join(json.dumps({"a": i, "b": str(i**9)}) + "\n" for i in range(20_000))
    path = write(tmp_path, f"t.jsonl.{ending}", lines)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) * 3 // 4])
    faults = [row for row in RowFile(path, "t") if isinstance(row, Fault)]
    assert "t: cannot be read" in str(faults[-1])
    assert "(check that it is whole)" in str(faults[-1])


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_what_only_claims_to_be_compressed_is_a_fault(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.jsonl.{ending}"
    path.write_bytes(b'{"a": 1}\n')
    [fault] = list(RowFile(path, "t"))
    assert "t: cannot be read" in str(fault)


def test_frames_of_zstandard_may_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(b'{"a": 1}\n') + compress(b'{"a": 2}\n'))
    assert list(RowFile(path)) == [SourceRow(1, {"a": 1}), SourceRow(2, {"a": 2})]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t.txt", "is of no format that labelkit reads (use .jsonl, .json, .csv"),
        ("jsonl", "is of no format"),
        ("t.parquet.gz", "is of no format"),
        ("t.gz", "is of no format"),
        ("missing.jsonl", "does not exist (the path starts at the spec's folder"),
        ("folder.jsonl", "is not a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_once(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(SpecError) as caught:
        RowFile(tmp_path / name, name)
    assert str(caught.value).startswith(f"{name}: {said}")


def test_what_is_not_parquet_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "t.parquet", b"PAR1 not really")
    with pytest.raises(SpecError, match="t: is not a parquet file"):
        list(RowFile(path, "t"))


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [("pyarrow", "t.parquet", "parquet"), ("zstandard", "t.jsonl.zst", "zstd")],
)
def test_a_missing_library_is_told_with_the_command_that_installs_it(
    tmp_path: Path, library: str, name: str, extra: str
) -> None:
    path = write(tmp_path, name, b"x")
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from pathlib import Path\n"
        "from labelkit.errors import UsageError\n"
        "from labelkit.rowfiles import RowFile\n"
        f"try: RowFile(Path({str(path)!r}))\n"
        "except UsageError as error: print(error, '|', error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert f"needs {library} | pip install 'labelkit[{extra}]'" in done.stdout


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": [1, {"c": None}]}),
        ("a.b.0", 1),
        ("a.b.1.c", None),
        ("x.y", "dotted key"),
        ("a.b.2", MISSING),
        ("a.b.-1", MISSING),
        ("a.c", MISSING),
        ("a.b.c", MISSING),
        ("", MISSING),
        ("a.b.0.z", MISSING),
    ],
)
def test_dotted_paths_reach_into_objects_and_lists(path: str, value: object) -> None:
    assert lookup({"a": {"b": [1, {"c": None}]}, "x.y": "dotted key"}, path) == value


def test_a_link_to_what_is_no_file_of_rows_is_refused(tmp_path: Path) -> None:
    """A key file read as csv would be a table of its lines."""
    key = write(tmp_path, "id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n")
    (tmp_path / "tasks.csv").symlink_to(key)
    with pytest.raises(SpecError, match=r"is a link to .*id_ed25519, which is of no format"):
        RowFile(tmp_path / "tasks.csv")


@pytest.mark.parametrize("name", ["other.jsonl", "a" * 40, "0123456789abcdef" * 4])
def test_a_link_into_a_cache_of_data_sets_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "tasks.jsonl").symlink_to(write(tmp_path, name, '{"a": 1}\n'))
    assert list(RowFile(tmp_path / "tasks.jsonl")) == [SourceRow(1, {"a": 1})]
