"""YAML as specs use it: strict, bounded, and without a surprise.

Loading never runs code, never follows an alias and never guesses a type: `no` stays a word, `012`
stays text. Nothing here knows what a spec is.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from pydantic import JsonValue

from labelkit.codec import UTF_16, unwritable
from labelkit.errors import Fault, SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 50

Place = tuple[str | int, ...]
"""A path into a document, from its root."""


def parse_yaml(raw: bytes, shown: str) -> tuple[JsonValue, dict[Place, int]]:
    """One YAML document as JSON values with the line of each path. Raises SpecError.

    No aliases, tags, duplicate or non-text keys; at most 1 MB and 50 levels.
    """
    if len(raw) > MAX_BYTES:
        fix = "keep tasks in a file of their own (tasks: {file: …})"
        raise SpecError([Fault(f"is longer than {MAX_BYTES:,} bytes", shown, fix=fix)])
    try:
        text = raw.decode("utf-8-sig")
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Place, int] = {}
            return (None if node is None else _value(node, (), lines)), lines
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        said = f"is not UTF-8 text (byte {error.start + 1})"
        if raw.startswith(UTF_16):
            said = "is UTF-16 text"
        raise SpecError([Fault(said, shown, fix="save it as UTF-8")]) from None
    except _Refused as error:
        raise SpecError([Fault(str(error), shown, error.line, fix=error.fix)]) from None
    except yaml.MarkedYAMLError as error:
        marks = [mark for mark in (error.problem_mark, error.context_mark) if mark is not None]
        problem = f"is not YAML: {error.problem or error.context}"
        raise SpecError([Fault(problem, shown, marks[0].line + 1 if marks else None)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"has a character that YAML does not allow: U+{error.character:04X}"
        raise SpecError([Fault(problem, shown, line)]) from None


class _Refused(Exception):
    def __init__(self, problem: str, node: yaml.Node | yaml.Event, fix: str | None = None) -> None:
        super().__init__(problem)
        mark = node.start_mark
        self.line = None if mark is None else mark.line + 1
        self.fix = fix


class _Loader(yaml.SafeLoader):
    """Composes nodes with YAML 1.2's plain scalars; bounded in depth, without aliases."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _Refused("has an alias (*name)", event, "write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _Refused(f"has the tag {tag}", event, "use plain values")
        if self.depth > MAX_DEPTH:
            raise _Refused(f"is nested more than {MAX_DEPTH} levels deep", event)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), None)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), None)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9]\d*)$"), None)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$"),
    None,
)


def _value(node: yaml.Node, at: Place, lines: dict[Place, int]) -> JsonValue:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        members: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            if key in members:
                raise _Refused(f"has the key `{key}` twice", key_node, "keep one of them")
            lines[(*at, key)] = key_node.start_mark.line + 1
            members[key] = _value(value_node, (*at, key), lines)
        return members
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*at, i), lines) for i, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    return _scalar(node)


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _Refused("has a key that is not text", node)
    if node.value == "<<":
        raise _Refused("has a merge key (<<)", node, "write the members out")
    return _text(node)


def _text(node: yaml.ScalarNode) -> str:
    text = str(node.value)
    problem = unwritable(text)
    if problem:
        raise _Refused(f"has text that {problem}", node, "write the character itself")
    return text


def _scalar(node: yaml.ScalarNode) -> JsonValue:
    kind, text = node.tag.rsplit(":", 1)[1], str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return text == "true"
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise _Refused(f"has a number of {len(text):,} digits", node) from None
    if kind == "float":
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise _Refused(f"has a number out of range: {text[:40]}", node)
        return number
    return _text(node)
