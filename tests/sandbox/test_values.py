"""The codec between sandboxes: types survive, disguises do not."""

from __future__ import annotations

import collections
import http
import json
import math
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelkit.sandbox.values import MAX_DEPTH, NotPlain, decode, encode

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
    | st.decimals(allow_nan=False)
)
HASHABLE = st.recursive(
    ATOMS, lambda inner: st.lists(inner).map(tuple) | st.frozensets(inner), max_leaves=8
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.sets(HASHABLE)
        | st.dictionaries(HASHABLE, inner)
        | st.lists(inner).map(collections.deque)
        | st.binary().map(bytearray)
    ),
    max_leaves=20,
)


def crossed(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


def typed(value: Any) -> Any:
    """A form in which 1, 1.0 and True differ, and a tuple from a list."""
    if isinstance(value, dict):
        return "dict", [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(repr(typed(item)) for item in value)
    return type(value).__name__, repr(value)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_values_cross_with_their_types(value: Any) -> None:
    assert typed(crossed(value)) == typed(value)


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        -(2**64),
        10**4000,
        -0.0,
        math.inf,
        -math.inf,
        5e-324,
        "\ud800",
        "a\x00b\u2028",
        range(1, 10**30, 3),
        {(1, 2): {None: True}},
        Decimal("1.10"),
        Fraction(1, 3),
        int,
        type(None),
        [float("nan"), (float("nan"),)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_edges_cross(value: Any) -> None:
    assert typed(crossed(value)) == typed(value)


def test_subclasses_arrive_as_the_plain_value_under_them() -> None:
    class Any_:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    disguises: list[tuple[type, Any, Any]] = [
        (int, (5,), 5),
        (float, (0.5,), 0.5),
        (str, ("x",), "x"),
        (bytes, (b"x",), b"x"),
        (list, ([1],), [1]),
        (tuple, ((1,),), (1,)),
        (dict, ({1: 2},), {1: 2}),
    ]
    for kind, arguments, plain in disguises:
        disguised = type("Disguise", (Any_, kind), {})(*arguments)
        assert disguised == "anything"
        assert typed(crossed(disguised)) == typed(plain)
    assert typed(crossed(http.HTTPStatus.OK)) == typed(200)
    assert typed(crossed(collections.Counter("aab"))) == typed({"a": 2, "b": 1})
    assert typed(crossed(time.gmtime(0))) == typed((1970, 1, 1, 0, 0, 0, 3, 1, 0))


@pytest.mark.parametrize("value", [object(), lambda: 1, iter([]), math, type("T", (), {})])
def test_what_is_not_plain_needs_a_handle(value: Any) -> None:
    with pytest.raises(NotPlain):
        encode(value)
    assert encode([value], lambda given: ["handle", int(given is value)]) == [
        "list",
        [["handle", 1]],
    ]
    assert decode(["list", [["handle", 1]]], lambda data: data[1]) == [1]


def test_depth_is_bounded_so_cycles_end() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(NotPlain, match=str(MAX_DEPTH)):
        encode(cycle)


@pytest.mark.parametrize(
    "data",
    [[], {}, 1.5, ["list"], ["set", [["list", []]]], ["dict", [[1]]], ["int", "x"], ["no", 1]],
)
def test_what_encode_cannot_have_written_raises(data: Any) -> None:
    with pytest.raises((ValueError, TypeError, IndexError, KeyError)):
        decode(data)
