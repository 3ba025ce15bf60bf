"""From an answer's text to the text of its formula, and a formula's form.

Takes away what is not part of the formula: delimiters, emphasis, a sentence's lead, prose behind.
"""

from __future__ import annotations

import re

from labelkit.scorers.extract import Candidate
from labelkit.scorers.folding import fold
from labelkit.scorers.formula import Node, number, written
from labelkit.scorers.latex_layout import without_layout

_DELIMITED = re.compile(
    r"\$\$(.+?)\$\$|\$((?:[^$\\]|\\.)+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_LEAD = re.compile(
    r"^(?:\\text\s*\{)?\s*(?:[A-Za-z][A-Za-z',\s-]{0,120}\s)?"
    r"(?:is|are|equals|be|answer\s?:|equal\s+to)\s?:?\s*\}?\s*(?=\S)",
    re.IGNORECASE,
)
_TRAIL = re.compile(
    r"(?:(?:,|(?<!\s))\s++(?:since|because|where|which|when|for|as|so|if|by|due|with|after|from|units?)\b"
    r"|\s\(|;\s|,\s(?=[a-z]{2,}\s[a-z]{2,})).*$",
    re.DOTALL,
)
_EMPHASIS = re.compile(r"\*\*|__")


def formula_texts(candidate: Candidate) -> list[str]:
    """What the formula of a candidate may be, most literal first; folded."""
    text = without_layout(_EMPHASIS.sub("", fold(candidate.text))).strip().rstrip(".").strip()
    texts = [_undelimited(text)]
    lead = _LEAD.match(text)
    if lead and lead.end() < len(text):
        texts.insert(0, _undelimited(text[lead.end() :]))
    if not candidate.exact or candidate.rule == "whole":
        span = _DELIMITED.match(texts[0])
        if span:
            texts.insert(0, next(part for part in span.groups() if part))
        shorter = [_TRAIL.sub("", one) for one in texts]
        texts = [*shorter, *texts]
    return list(dict.fromkeys(part for part in texts if part))


def _undelimited(text: str) -> str:
    """The inside of math delimiters around a whole text."""
    for _ in range(3):
        found = _DELIMITED.fullmatch(text)
        if found is None:
            break
        text = next(part for part in found.groups() if part is not None).strip()
    return text


def shape(node: Node) -> str:
    """A formula's form: order of sums, products and sets and notation aside, nothing worked out."""
    args = [shape(arg) for arg in _flat(node)]
    if node.kind in ("add", "mul", "set", "cup", "cap"):
        args.sort()
    if node.kind == "rel" and node.name in (">", ">="):
        return shape(Node("rel", node.args[::-1], "<" + node.name[1:]))
    if node.kind in ("num", "sym", "const", "word", "based", "dots"):
        suffix = f".{node.places}" if node.places is not None else ""
        return written(node) + suffix
    if node.kind in ("add", "mul") and len(args) == 1:
        return args[0]
    return f"{node.kind}:{node.name}({','.join(args)})"


def _flat(node: Node) -> list[Node]:
    """Arguments with nested sums, products and signs opened up; factors of one left out."""
    if node.kind not in ("add", "mul"):
        return list(node.args)
    opened: list[Node] = []
    for arg in node.args:
        opened += _flat(arg) if arg.kind == node.kind else [arg]
    if node.kind == "mul":
        one = number(1)
        signs = sum(arg == number(-1) for arg in opened)
        opened = [arg for arg in opened if arg not in (one, number(-1))]
        if signs % 2:
            opened.append(number(-1))
        return opened or [one]
    return opened
