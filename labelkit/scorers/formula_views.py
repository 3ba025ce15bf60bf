"""How a formula may be looked at as an answer: its label, its members, its words, its unit."""

from __future__ import annotations

from labelkit.scorers.formula import Node, negated, written
from labelkit.scorers.numbers import spelling


def text_of(node: Node) -> str:
    """The words of a text answer."""
    if node.kind in ("word", "sym", "const"):
        return node.name
    if node.kind == "num" and node.value is not None:
        return spelling(node.value)
    joint = ", " if node.kind in ("list", "set") else " "
    return joint.join(text_of(arg) for arg in node.args)


def label_of(node: Node) -> str | None:
    """The name that an equation gives its right side: x, D, f(x); None where it is no label."""
    left, right = node.args[:2]
    if left.kind == "call":
        if not left.args or not all(arg.kind == "sym" for arg in left.args):
            return None
        name = left.name
    elif left.kind in ("sym", "word"):
        name = left.name
    elif left.kind == "mul" and all(arg.kind == "word" for arg in left.args):
        name = text_of(left)
    else:
        return None
    return None if any(part.kind == "sym" and part.name == name for part in right.walk()) else name


def plain(node: Node) -> Node:
    """Without what only introduces the answer: membership, a label on a list's first member."""
    if node.kind == "rel" and node.name == "in" and node.args[0].kind in ("sym", "group"):
        return plain(node.args[1])
    if node.kind == "chain" and all(part.name == "=" for part in node.args):
        return plain(Node("rel", (node.args[0].args[0], node.args[-1].args[1]), "="))
    if node.kind == "rel" and node.name == "=" and node.args[0].kind == "group":
        left, right = node.args
        if right.kind == "group" and all(arg.kind == "sym" for arg in left.args):
            return right
    if node.kind == "rel" and node.name == "≈":
        return plain(node.args[0])
    return node


def members(node: Node) -> tuple[Node, ...] | None:
    """The members of an unordered answer: a set, a list, either sign; None for a single one."""
    if node.kind in ("set", "list"):
        found = tuple(part for arg in node.args for part in (members(arg) or (plain(arg),)))
        return _unlabelled(found) if node.kind == "list" else found
    if node.kind in ("cup", "cap", "minus") and all(arg.kind == "set" for arg in node.args):
        return _set_operation(node)
    if node.kind == "rel" and node.name == "=" and label_of(node) is not None:
        return members(node.args[1])
    return _both_signs(node)


def _set_operation(node: Node) -> tuple[Node, ...]:
    first, *others = node.args
    if node.kind == "cup":
        return tuple(part for arg in node.args for part in arg.args)
    spelt = [{written(part) for part in arg.args} for arg in others]
    if node.kind == "cap":
        return tuple(part for part in first.args if all(written(part) in one for one in spelt))
    return tuple(part for part in first.args if not any(written(part) in one for one in spelt))


def _unlabelled(found: tuple[Node, ...]) -> tuple[Node, ...]:
    """Members without their labels where those only number them (x_1 = 1, x_2 = 2; n = 2, 3)."""
    labels = [
        label_of(member) if member.kind == "rel" and member.name == "=" else None
        for member in found
    ]
    stems = {label.split("_")[0] for label in labels if label is not None}
    if len(stems) != 1:
        return found
    return tuple(
        plain(member.args[1]) if label is not None else member
        for member, label in zip(found, labels, strict=True)
    )


def _both_signs(node: Node) -> tuple[Node, ...] | None:
    """What a formula with ± stands for: one formula a choice of signs, all ± alike."""
    if node.kind not in ("add", "mul", "pm", "pow", "call") or not any(
        part.kind == "pm" for part in node.walk()
    ):
        return None
    return _chosen(node, plus=True), _chosen(node, plus=False)


def _chosen(node: Node, *, plus: bool) -> Node:
    if node.kind == "pm":
        inner = _chosen(node.args[0], plus=plus)
        return inner if plus else negated(inner)
    args = tuple(_chosen(arg, plus=plus) for arg in node.args)
    return Node(node.kind, args, node.name, node.value, node.places)


def split_unit(node: Node) -> tuple[Node, str]:
    """An expression and the words behind it."""
    if node.kind != "mul":
        return node, ""
    count = len(node.args)
    while count > 1 and node.args[count - 1].kind == "word":
        count -= 1
    if count == len(node.args):
        return node, ""
    kept = node.args[0] if count == 1 else Node("mul", node.args[:count])
    return kept, " ".join(arg.name for arg in node.args[count:])
