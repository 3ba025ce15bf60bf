"""The typed codec in which values cross from one confined process to another.

JSON that keeps Python's types: tuples stay tuples, floats keep NaN and infinities, integers their
size, dicts their key types. Only plain values come out of `decode`: a subclass that compares equal
to everything arrives as the plain value under it, anything else as an opaque handle that its owner
keeps. Runs inside sandboxes, so it imports the standard library only.
"""

from __future__ import annotations

import binascii
import collections
import sys
import types
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 200
MAX_ITEMS = 1_000_000
_JSON_SAFE = 2**53
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "iterator": iter,
}
_ITERABLE: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)
_TYPES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, complex, bool, str, bytes, list, tuple, set, frozenset, dict, object)
} | {"NoneType": types.NoneType}

Export = Callable[[Any], list[Any]]
Import = Callable[[list[Any]], Any]


class NotPlain(TypeError):
    """A value that has no plain form, or is too deep or too large to cross."""


def refuse(value: Any) -> Any:
    """The export and import of a side that hands out no handles and takes none."""
    raise NotPlain(f"a {type(value).__name__} object cannot be handed over")


def encode(value: Any, export: Export = refuse) -> Any:
    """`value` as JSON data; `export` makes the handle of what is not plain, or raises NotPlain."""
    return _Encoder(export).encode(value, 0)


def decode(data: Any, import_: Import = refuse) -> Any:
    """The plain value of what `encode` wrote; `import_` makes something of a handle.

    Raises ValueError or TypeError on data that `encode` cannot have written.
    """
    if data is None or isinstance(data, bool | str | int):
        return data
    if not isinstance(data, list) or not data:
        raise ValueError("not an encoded value")
    kind, *rest = data
    if kind in _CONTAINERS:
        return _CONTAINERS[kind]([decode(item, import_) for item in rest[0]])
    if kind == "dict":
        return {decode(key, import_): decode(item, import_) for key, item in rest[0]}
    if kind in _SCALARS:
        return _SCALARS[kind](*rest)
    return import_(data)


class _Encoder:
    def __init__(self, export: Export) -> None:
        self._export = export
        self._items = 0

    def encode(self, value: Any, depth: int) -> Any:
        self._items += 1
        if depth > MAX_DEPTH or self._items > MAX_ITEMS:
            raise NotPlain(f"a value of more than {MAX_DEPTH} levels or {MAX_ITEMS:,} items")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            number = int.__add__(value, 0)
            return number if -_JSON_SAFE < number < _JSON_SAFE else ["int", hex(number)]
        if isinstance(value, float):
            return ["float", float.hex(value)]
        return self._other(value, depth + 1)

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            pairs = [
                [self.encode(key, depth), self.encode(item, depth)]
                for key, item in dict.items(value)
            ]
            return ["dict", pairs]
        for kind in _ITERABLE:
            if isinstance(value, kind):
                return [kind.__name__, [self.encode(item, depth) for item in kind.__iter__(value)]]
        if isinstance(value, complex):
            return ["complex", float.hex(value.real), float.hex(value.imag)]
        if isinstance(value, bytes | bytearray):
            name = "bytes" if isinstance(value, bytes) else "bytearray"
            return [name, binascii.hexlify(value).decode("ascii")]
        if isinstance(value, range):
            return ["range", *(hex(part) for part in (value.start, value.stop, value.step))]
        if _is_a(value, "decimal", "Decimal"):
            return ["Decimal", str(value)]
        if _is_a(value, "fractions", "Fraction"):
            return ["Fraction", hex(value.numerator), hex(value.denominator)]
        known_type = isinstance(value, type) and _TYPES.get(value.__name__) is value
        if known_type:
            return ["type", value.__name__]
        return self._export(value)


def _is_a(value: Any, module: str, name: str) -> bool:
    """isinstance for types of modules that only those who use them have loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _decimal(text: str) -> Any:
    import decimal

    return decimal.Decimal(text)


def _fraction(over: str, under: str) -> Any:
    import fractions

    return fractions.Fraction(int(over, 16), int(under, 16))


_SCALARS: dict[str, Callable[..., Any]] = {
    "int": lambda digits: int(digits, 16),
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "bytes": binascii.unhexlify,
    "bytearray": lambda text: bytearray(binascii.unhexlify(text)),
    "range": lambda *parts: range(*(int(part, 16) for part in parts)),
    "Decimal": _decimal,
    "Fraction": _fraction,
    "type": _TYPES.__getitem__,
}
