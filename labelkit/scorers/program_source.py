"""Finds the program in a reply: fenced, bare, or the continuation of a prompt.

Only text is looked at; nothing is run and nothing is mended. Where a reply offers several programs
the last one is its answer, however it fares.
"""

from __future__ import annotations

import ast
import re
import textwrap
import threading
from dataclasses import dataclass

from labelkit.records import Reply
from labelkit.scorers.fences import CodeBlock, code_blocks

_PYTHON = ("python", "py", "python3", "py3")
_FIRST_LINE = re.compile(r"^(?:import |from |def |async def |class |@|[A-Za-z_]\w* *=)", re.M)
_MOST_TRIED = 300_000
_LONGEST_PARSED = 100_000
"""Characters of a program; the parser lets no other thread run, for some 2 s a million."""
# CPython counts how deep it builds trees for all threads together (gh-106905): two at a time end in
# SystemError.
_parser = threading.Lock()


@dataclass(frozen=True)
class Source:
    """A program as it stands in the reply. `continues`: it goes on from the prelude's last line."""

    code: str
    span: tuple[int, int]
    rule: str
    continues: bool = False


def find_function(reply: Reply, name: str, prelude: str) -> Source | None:
    """The last program that defines `name`, or else continues the prelude's stub of it."""
    blocks = _python_blocks(reply.text)
    defines = _definition(name)
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if defines.search(block.code):
            code = block.code if _parsed(block.code) else textwrap.dedent(block.code)
            code = _with_helpers(blocks[:index], code, defines)
            return Source(code, block.span, "code:last")
    stubbed = bool(prelude) and defines.search(prelude) is not None
    if blocks:
        return _continuation(blocks[-1].code, blocks[-1].span, prelude) if stubbed else None
    bare = _bare(reply.text)
    if bare is not None and defines.search(bare.code):
        return bare
    return _continuation(reply.text, (0, len(reply.text)), prelude) if stubbed else None


def find_program(reply: Reply) -> Source | None:
    """The last whole program: fenced code that parses, else bare code."""
    blocks = _python_blocks(reply.text)
    for block in reversed(blocks):
        if _does_something(block.code):
            return Source(block.code, block.span, "code:last")
    if blocks:
        return Source(blocks[-1].code, blocks[-1].span, "code:last")
    return _bare(reply.text)


def _definition(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    function = rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{word}\b"
    return re.compile(rf"{function}|^class[ \t]+{word}\b|^{word}[ \t]*(?::[^=\n]*)?=", re.M)


def _python_blocks(text: str) -> list[CodeBlock]:
    """The blocks marked as Python; where there are none, those that are not marked at all."""
    blocks = [block for block in code_blocks(text) if block.code.strip()]
    marked = [block for block in blocks if block.language.strip("{.}") in _PYTHON]
    return marked or [block for block in blocks if not block.language]


def _with_helpers(earlier: list[CodeBlock], code: str, defines: re.Pattern[str]) -> str:
    """Earlier blocks of definitions go before a program that uses their names without its own."""
    tree = _parsed(code)
    if tree is None:
        return code
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    missing = used - _names(tree)
    helpers = []
    for block in earlier:
        helper = None if defines.search(block.code) else _parsed(block.code)
        if helper is not None and _only_defines(helper) and _names(helper) & missing:
            helpers.append(block.code)
    return "\n".join([*helpers, code])


def _only_defines(tree: ast.Module) -> bool:
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return all(isinstance(node, (*kinds, ast.Assign, ast.AnnAssign)) for node in tree.body)


def _names(tree: ast.Module) -> set[str]:
    """The names that a module's own statements bind."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        else:
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            names.update(part.id for part in stored if isinstance(part.ctx, ast.Store))
    return names


def _bare(text: str) -> Source | None:
    """Code without fences: the whole reply, or the part from its first line of code that parses."""
    if code_blocks(text):
        return None
    if _does_something(text):
        return Source(text, (0, len(text)), "code:bare")
    first = _FIRST_LINE.search(text)
    if first is None:
        return None
    lines = text[first.start() :].splitlines(keepends=True)
    ends = [at for at in range(1, len(lines)) if lines[at].strip() and not lines[at][0].isspace()]
    tried = 0
    for end in [len(lines), *reversed(ends)]:
        code = "".join(lines[:end])
        tried += len(code)
        if tried > _MOST_TRIED:
            break
        if _does_something(code):
            return Source(code, (first.start(), first.start() + len(code)), "code:bare")
    return None


def _continuation(text: str, span: tuple[int, int], prelude: str) -> Source | None:
    """The body of the prelude's last function, with or without its first line's indent."""
    stripped = text.lstrip("\n").rstrip()
    bodies = [stripped, "    " + stripped.lstrip(), _indented(stripped)]
    for body in [*bodies, *map(_first_body, bodies)]:
        code = prelude.rstrip("\n") + "\n" + body + "\n"
        if body.strip() and _parsed(code) is not None and _grew(prelude, code):
            return Source(body, span, "code:continuation", continues=True)
    return None


def _first_body(text: str) -> str:
    """The text up to its first line at the margin."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if at and line.strip() and not line[0].isspace():
            return "".join(lines[:at])
    return text


def _grew(prelude: str, code: str) -> bool:
    """Whether the prelude's last function has more statements than before."""
    before, after = _parsed(prelude), _parsed(code)
    if before is None:
        return True
    if after is None:
        return False
    at = len(before.body) - 1
    return len(getattr(after.body[at], "body", [])) > len(getattr(before.body[at], "body", []))


def _indented(text: str) -> str:
    return "\n".join("    " + line if line.strip() else line for line in text.splitlines())


def _does_something(text: str) -> bool:
    """Whether it parses and is more than names and constants, as a word or a number would be."""
    tree = _parsed(text)
    if tree is None:
        return False
    idle = (ast.Constant, ast.Name, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.Compare)
    return any(
        not (isinstance(node, ast.Expr) and isinstance(node.value, idle)) for node in tree.body
    )


def parse(text: str) -> ast.Module:
    """`ast.parse`, from any thread. Raises what it raises."""
    with _parser:
        return ast.parse(text)


def _parsed(text: str) -> ast.Module | None:
    """The tree of a program, None where it is none or too long to be one."""
    if len(text) > _LONGEST_PARSED:
        return None
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
