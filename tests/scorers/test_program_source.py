"""Which program a reply offers: the last one that defines what is asked for, cut replies aside."""

from __future__ import annotations

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from labelkit.records import Reply
from labelkit.scorers.program_source import Source, find_function, find_program, parse

STUB = 'from typing import List\n\n\ndef add(a: int, b: int) -> int:\n    """Add."""\n'


def function(text: str, prelude: str = "") -> Source | None:
    return find_function(Reply(text=textwrap.dedent(text)), "add", prelude)


def code(text: str, prelude: str = "") -> str | None:
    found = function(text, prelude)
    return found.code.strip() if found else None


def test_the_last_block_that_defines_it_counts() -> None:
    text = """
        Draft:
        ```python
        def add(a, b): return a - b
        ```
        Final:
        ```python
        def add(a, b): return a + b
        ```
        Usage:
        ```python
        print(add(1, 2))
        ```
        It prints
        ```
        3
        ```
    """
    assert code(text) == "def add(a, b): return a + b"


def test_a_broken_last_definition_is_still_the_answer() -> None:
    text = "```python\ndef add(a, b): return a + b\n```\n```python\ndef add(a, b) return a\n```"
    assert code(text) == "def add(a, b) return a"


@pytest.mark.parametrize(
    "text",
    [
        "```python\ndef add(a, b): return 1\n```",
        "```py\ndef add(a, b): return 1\n```",
        "```Python3\ndef add(a, b): return 1\n```",
        "```\ndef add(a, b): return 1\n```",
        "~~~python\ndef add(a, b): return 1\n~~~",
        "````python\ndef add(a, b): return 1\n````",
        "1. So:\n   ```python\n   def add(a, b): return 1\n   ```",
        "```python\r\ndef add(a, b): return 1\r\n```\r\n",
        "```python\n    def add(a, b): return 1\n```",
        "```python\ndef add(a, b): return 1\n",
        "def add(a, b): return 1",
        "def add(a, b): return 1\n\nThis adds the numbers, doesn't it?",
        "Sure! Here is it:\n\ndef add(a, b): return 1\n\nIt's short.",
    ],
)
def test_forms_of_one_program(text: str) -> None:
    assert code(text) == "def add(a, b): return 1"


@pytest.mark.parametrize(
    "block",
    [
        "add = lambda a, b: a + b",
        "add: object = lambda a, b: a + b",
        "async def add(a, b): return a + b",
        "class add: pass",
        "class Solution:\n    def add(self, a, b): return a + b",
    ],
)
def test_definitions_are_more_than_def(block: str) -> None:
    assert code(f"```python\n{block}\n```") == block


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 3.",
        "def",
        "```python\ndef sum_two(a, b): return a + b\n```",
        "```python\nprint(add(1, 2))\n```",
        "```python\ndef add_all(a): return sum(a)\n```",
        "```python\nif add == 3: pass\n```",
        "```bash\nadd = 3\n```\n```javascript\nadd = (a, b) => a + b\n```",
        "I would define add = something.",
    ],
)
def test_no_program(text: str) -> None:
    assert code(text) is None


def test_earlier_blocks_of_definitions_help_where_their_names_are_used() -> None:
    text = """
        ```python
        print("setup")
        def unused(): pass
        ```
        ```python
        import math
        def helper(a): return math.floor(a)
        ```
        ```python
        def add(a, b): return helper(a) + b
        ```
    """
    assert code(text) == (
        "import math\ndef helper(a): return math.floor(a)\ndef add(a, b): return helper(a) + b"
    )


@pytest.mark.parametrize(
    "text",
    [
        "    return a + b\n",
        "\n    return a + b",
        "return a + b",
        "    if a:\n        return a + b\n    return b",
        "if a:\n    return a + b\nreturn b",
        "    return a + b\n\nprint(add(1, 2)\n",
        "    return a + b\n\nThis adds both.",
        "```python\n    return a + b\n```",
        "```python\nreturn a + b\n```",
    ],
)
def test_continuations_of_a_stub(text: str) -> None:
    found = find_function(Reply(text=text), "add", STUB)
    assert found is not None
    assert found.continues
    program = STUB + found.code
    names: dict[str, object] = {}
    exec(compile(program, "program", "exec"), names)
    add = names["add"]
    assert callable(add)
    assert add(2, 3) == 5


def test_a_whole_function_is_no_continuation() -> None:
    found = function("def add(a, b):\n    return a + b", STUB)
    assert found is not None
    assert not found.continues


@pytest.mark.parametrize("text", ["", "I cannot do that.", "print(add(1, 2))", "pass it on"])
def test_prose_and_other_code_continue_nothing(text: str) -> None:
    found = find_function(Reply(text=text), "add", STUB)
    assert found is None or found.continues


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)\n```\nOutput:\n```\n1\n```", "print(1)"),
        ("```\nprint(1)\n```\n```\n1 2\n```\n```\n42\n```", "print(1)"),
        ("```python\nprint(0)\n```\nNo:\n```python\nprint(1)\n```", "print(1)"),
        ("print(1)", "print(1)"),
        ("The answer is 1.", None),
        ("yes", None),
        ("", None),
    ],
)
def test_whole_programs(text: str, program: str | None) -> None:
    found = find_program(Reply(text=text))
    assert (found.code.strip() if found else None) == program


@pytest.mark.parametrize(
    "text",
    [
        "def x(\n" * 12_000,
        "x = 1\n" * 15_000 + "(",
        "x = 1\n" * 300_000,
        "```python\ndef add(\n" * 5_000,
        "(" * 100_000,
        "```\n" * 25_000,
        "def add(a, b):\n    return 0\nword word\n" * 2_500,
    ],
)
def test_any_reply_is_read_in_bounded_time(text: str) -> None:
    start = time.process_time()
    find_function(Reply(text=text), "add", STUB)
    find_program(Reply(text=text))
    assert time.process_time() - start < 3.0


def test_golds_and_replies_are_parsed_in_several_threads_at_once() -> None:
    """CPython's parser counts its depth for all threads together."""
    text = "def f(x):\n" + "".join(f"    y{i} = [(x + {i}) * (x - {i})]\n" for i in range(400))
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse, [text] * 200))
    assert {len(tree.body) for tree in trees} == {1}
