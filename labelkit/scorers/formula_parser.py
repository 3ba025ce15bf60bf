"""Formulas from text: a recursive descent over tokens, bounded in depth and length.

All of a text must be read or none of it is: what cannot be placed is an error, never dropped.
"""

from __future__ import annotations

from fractions import Fraction

from labelkit.scorers.formula import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_TREE_DEPTH,
    NUMBER_SETS,
    FormulaError,
    Node,
    divided,
    negated,
    number,
)
from labelkit.scorers.formula_parts import (
    first_digit,
    function_of,
    grouped,
    laid_out,
    primed,
    proper_fraction,
    spaced_fraction,
    subscripted,
    times,
)
from labelkit.scorers.formula_stream import BRACKETS, TokenStream
from labelkit.scorers.formula_tokens import Token, tokenize

_RELATIONS_NAMES = "= != < > <= >= ≈ ≡ ~ ≅ in notin to => <=> subset subseteq perp"
_RELATIONS = frozenset(_RELATIONS_NAMES.split())
_NAMING = frozenset(["angle", "triangle", "measuredangle"])
_BIG = frozenset(["sum", "prod", "int", "iint", "oint", "lim"])
_APPLIED = frozenset(["f", "g", "h", "F", "G", "O", "Theta", "Omega", "P"])
_MATRICES_NAMES = "matrix pmatrix bmatrix Bmatrix vmatrix smallmatrix array"
_MATRICES = frozenset(_MATRICES_NAMES.split())


def parse(text: str, *, grouping: bool = True) -> Node:
    """The formula that a folded text is. Raises FormulaError where it is none.

    The text is bounded by MAX_CHARACTERS, the tree's depth by MAX_TREE_DEPTH.
    """
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(f"is longer than {MAX_CHARACTERS:,} characters")
    parser = _Parser(tokenize(text, grouping=grouping))
    try:
        node = parser.items(0)
    except RecursionError:
        raise FormulaError("is nested too deeply") from None
    if parser.at < len(parser.tokens):
        raise FormulaError(f"has a {parser.tokens[parser.at].text!r} that does not fit")
    if node.is_deeper_than(MAX_TREE_DEPTH):
        raise FormulaError("is nested too deeply")
    return node


class _Parser(TokenStream):
    """One method a level of the grammar, loosest first; each reads what it names and returns it."""

    def items(self, depth: int) -> Node:
        """Formulas between commas or joining words; one alone is itself."""
        if depth > MAX_DEPTH:
            raise FormulaError("is nested too deeply")
        found = [self.relation(depth)]
        joint = ""
        while self.take(",", ";", "and", "or"):
            said = self.tokens[self.at - 1].text
            joint = "or" if said == "or" else joint
            if said == "," and self.is_op("and", "or"):
                joint = "or" if self.is_op("or") else joint
                self.at += 1
            found.append(self.relation(depth))
        return found[0] if len(found) == 1 else Node("list", tuple(found), joint)

    def relation(self, depth: int) -> Node:
        sides = [self.ratio(depth)]
        signs: list[str] = []
        while True:
            token = self.peek()
            if token is None or token.kind != "op" or token.text not in _RELATIONS:
                break
            self.at += 1
            signs.append(token.text)
            sides.append(self.ratio(depth))
        if not signs:
            return sides[0]
        parts = [Node("rel", (sides[i], sides[i + 1]), sign) for i, sign in enumerate(signs)]
        return parts[0] if len(parts) == 1 else Node("chain", tuple(parts))

    def ratio(self, depth: int) -> Node:
        parts = [self.sets(depth)]
        while self.take(":"):
            parts.append(self.sets(depth))
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def sets(self, depth: int) -> Node:
        node = self.sum(depth)
        while self.is_op("cup", "cap", "minus"):
            kind = self.tokens[self.at].text
            self.at += 1
            other = self.sum(depth)
            if node.kind == kind and kind != "minus":
                node = Node(kind, (*node.args, other))
            else:
                node = Node(kind, (node, other))
        return node

    def sum(self, depth: int) -> Node:
        terms = [self.product(depth)]
        while self.is_op("+", "-", "±", "mod"):
            sign = self.tokens[self.at].text
            self.at += 1
            term = self.product(depth)
            if sign == "mod":
                terms = [Node("call", (Node("add", tuple(terms)), term), "mod")]
            elif sign == "±":
                terms.append(Node("pm", (term,)))
            else:
                terms.append(term if sign == "+" else negated(term))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def product(self, depth: int) -> Node:
        if self.take("-"):
            return negated(self.product(depth))
        if self.take("+"):
            return self.product(depth)
        if self.take("±"):
            return Node("pm", (self.product(depth),))
        node = self.power(depth)
        while True:
            if self.take("*"):
                node = times(node, self.signed_power(depth))
            elif self.take("/"):
                node = divided(node, self.signed_power(depth))
            elif self.starts_factor():
                node = times(node, self.power(depth))
            else:
                return node

    def signed_power(self, depth: int) -> Node:
        if self.take("-"):
            return negated(self.signed_power(depth))
        return self.power(depth)

    def power(self, depth: int) -> Node:
        """An atom with all that is attached behind it."""
        if depth > MAX_DEPTH:
            raise FormulaError("is nested too deeply")
        node = self.atom(depth)
        while True:
            if self.take("^"):
                if self.is_op("degree", "circ") or self.is_braced("degree", "circ"):
                    self.at += 1 if self.is_op("degree", "circ") else 3
                    node = Node("call", (node,), "degrees")
                elif self.is_op("'") or self.is_braced("'"):
                    self.at += 1 if self.is_op("'") else 3
                    node = primed(node)
                else:
                    node = Node("pow", (node, self.script(depth, chained=True)))
            elif self.take("_"):
                node = subscripted(node, self.script(depth))
            elif self.take("!"):
                node = Node("call", (node,), "factorial")
            elif self.take("%"):
                node = Node("percent", (node,))
            elif self.take("degree"):
                node = Node("call", (node,), "degrees")
            elif self.take("'"):
                node = primed(node)
            else:
                return node

    def script(self, depth: int, *, chained: bool = False) -> Node:
        """What stands raised or lowered: a group, a signed atom; `chained` for a^b^c."""
        if self.take("-"):
            return negated(self.script(depth, chained=chained))
        if self.take("+"):
            return self.script(depth, chained=chained)
        if self.take("{"):
            node = self.items(depth + 1)
            self.expect("}")
            return node
        node = self.atom(depth + 1)
        if chained and self.take("^"):
            return Node("pow", (node, self.script(depth + 1, chained=True)))
        return node

    def atom(self, depth: int) -> Node:
        token = self.peek()
        if token is None:
            raise FormulaError("ends too early")
        self.at += 1
        match token.kind:
            case "num":
                return self.number(token, depth)
            case "sym":
                return self.symbol(token, depth)
            case "const":
                return Node("const", name=token.text)
            case "func":
                return self.function(token.text, depth)
            case "word":
                return Node("word", name=token.text)
            case "cmd":
                return self.command(token.text, depth)
            case "begin":
                return self.environment(token.text, depth)
            case "op":
                return self.bracket(token.text, depth)
        raise FormulaError(f"has a {token.text!r} that does not fit")

    def number(self, token: Token, depth: int) -> Node:
        assert token.literal is not None
        literal = token.literal
        node = Node("num", value=literal.value, places=literal.places)
        if literal.places is not None or literal.value.denominator != 1:
            return node
        following = self.tokens[self.at : self.at + 3]
        if len(following) > 0 and following[0].kind == "cmd" and following[0].text == "frac":
            start = self.at
            self.at += 1
            part = self.fraction(depth)
            value = proper_fraction(part)
            if value is not None:
                return number(literal.value + value)
            self.at = start
        plain = spaced_fraction(following)
        if plain is not None:
            self.at += 3
            return number(literal.value + plain)
        return node

    def symbol(self, token: Token, depth: int) -> Node:
        if token.text == "∅":
            return Node("set")
        if token.text in _APPLIED and self.is_op("("):
            self.at += 1
            inner = self.items(depth + 1)
            self.expect(")")
            return Node("call", inner.args if inner.kind == "list" else (inner,), token.text)
        return Node("sym", name=token.text)

    def function(self, name: str, depth: int) -> Node:
        root = Fraction(2)
        base: Node | None = None
        power: Node | None = None
        if name == "sqrt" and self.take("["):
            index = self.sum(depth + 1)
            self.expect("]")
            if index.value is None:
                return Node("call", (self.script(depth), index), "root")
            root = index.value
        while name != "sqrt" and self.is_op("^", "_"):
            if self.take("^"):
                power = self.script(depth)
            elif self.take("_"):
                base = self.script(depth)
        if self.take("("):
            inner = self.items(depth + 1)
            self.expect(")")
            args = inner.args if inner.kind == "list" else (inner,)
        elif name in ("sqrt", "cbrt"):
            args = (self.script(depth),)
        else:
            args = (self.applied_product(depth),)
        node = function_of(name, args, base, root)
        if power is None:
            return node
        if power.value == -1 and "arc" + name in ("arcsin", "arccos", "arctan"):
            return Node("call", args, "arc" + name)
        return Node("pow", (node, power))

    def applied_product(self, depth: int) -> Node:
        """What a function without brackets takes: factors up to a sign or another function."""
        if self.take("-"):
            return negated(self.applied_product(depth))
        node = self.power(depth + 1)
        while self.starts_factor():
            token = self.peek()
            assert token is not None
            if token.kind in ("func", "word") or (token.kind == "cmd" and token.text in _BIG):
                break
            node = times(node, self.power(depth + 1))
        if self.is_op("/") and node.kind in ("const", "num", "sym"):
            following = self.tokens[self.at + 1 : self.at + 2]
            if following and following[0].kind == "num":
                self.at += 1
                node = divided(node, self.power(depth + 1))
        return node

    def command(self, name: str, depth: int) -> Node:
        if name == "frac":
            return self.fraction(depth)
        if name == "binom":
            return Node("call", (self.script(depth), self.script(depth)), "binom")
        if name == "mathbb":
            argument = self.script(depth)
            return Node("sym", name=NUMBER_SETS.get(argument.name, argument.name))
        if name in _NAMING:
            return Node("call", (self.letters(depth),), "\\" + name)
        if name not in _BIG:
            return Node("call", (self.script(depth),), "\\" + name)
        lower = upper = Node("blank")
        while self.is_op("^", "_"):
            if self.take("_"):
                lower = self.script(depth)
            elif self.take("^"):
                upper = self.script(depth)
        return Node("call", (lower, upper, self.product(depth + 1)), name)

    def letters(self, depth: int) -> Node:
        """The points that name an angle or a triangle: all letters that follow, or a group."""
        node = self.script(depth)
        while (token := self.peek()) is not None and token.kind == "sym":
            node = times(node, self.script(depth))
        return node

    def fraction(self, depth: int) -> Node:
        top = self.argument(depth)
        return divided(top, self.argument(depth))

    def argument(self, depth: int) -> Node:
        """A braced group; without braces LaTeX takes one character, so \\frac12 is a half."""
        if self.is_op("{"):
            return self.script(depth)
        token = self.peek()
        if token is None or token.literal is None:
            return self.script(depth)
        digit, rest = first_digit(token.literal)
        self.tokens[self.at : self.at + 1] = [] if rest is None else [Token("num", "", rest)]
        return number(digit)

    def bracket(self, sign: str, depth: int) -> Node:
        if sign in ("|", "‖"):
            self.bars += 1
            inner = self.items(depth + 1)
            self.expect(sign)
            self.bars -= 1
            return Node("call", (inner,), "abs" if sign == "|" else "norm")
        if sign == "dots":
            return Node("dots")
        if sign == "-":
            return negated(self.power(depth + 1))
        if sign == "forall" or sign not in BRACKETS:
            raise FormulaError(f"has a {sign!r} that does not fit")
        bars, self.bars = self.bars, 0
        node = self._bracketed(sign, depth)
        self.bars = bars
        return node

    def _bracketed(self, sign: str, depth: int) -> Node:
        closing = BRACKETS[sign]
        if self.take(closing):
            if sign in ("\\{", "{"):
                return Node("set")
            raise FormulaError("has empty brackets")
        inner = self.items(depth + 1)
        if sign == "\\{" and self.take("|"):
            condition = self.items(depth + 1)
            self.expect(closing)
            return Node("builder", (inner, condition))
        args = inner.args if inner.kind == "list" else (inner,)
        if sign in ("(", "[") and self.take(")", "]"):
            return grouped(sign + self.tokens[self.at - 1].text, args)
        self.expect(closing)
        if sign == "\\{":
            return Node("set", args)
        if sign == "{":
            return inner if len(args) == 1 else Node("set", args)
        if sign == "<(":
            return Node("group", args, "()")
        return Node("call", (inner,), "floor" if sign == "⌊" else "ceil")

    def environment(self, name: str, depth: int) -> Node:
        if name not in _MATRICES and name != "cases":
            self.unaligned(name)
            node = self.items(depth + 1)
            self.close_environment(name)
            return node
        rows: list[Node] = []
        row: list[Node] = []
        while True:
            if not self.is_op("&", "\\\\"):
                token = self.peek()
                if token is None or token.kind == "end":
                    break
                row.append(self.items(depth + 1))
            if self.take("&"):
                continue
            if self.take("\\\\"):
                rows.append(Node("row", tuple(row)))
                row = []
                continue
            break
        if row:
            rows.append(Node("row", tuple(row)))
        self.close_environment(name)
        return laid_out(name, tuple(rows))
