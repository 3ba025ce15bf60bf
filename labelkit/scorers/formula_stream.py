"""A stream of formula tokens with a position: what comes next, without knowing the grammar."""

from __future__ import annotations

from labelkit.scorers.formula import FormulaError
from labelkit.scorers.formula_tokens import Token

BRACKETS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "<(": ")>", "⌊": "⌋", "⌈": "⌉"}


class TokenStream:
    """Tokens and the place of the next one. `bars`: how many |…| are open around it."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.bars = 0

    def peek(self) -> Token | None:
        """The next token, None at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def is_op(self, *names: str) -> bool:
        """Whether the next token is one of these signs."""
        token = self.peek()
        return token is not None and token.kind == "op" and token.text in names

    def take(self, *names: str) -> bool:
        """Pass one of these signs if it comes next."""
        if self.is_op(*names):
            self.at += 1
            return True
        return False

    def expect(self, name: str) -> None:
        """Pass a sign that must come next. Raises FormulaError."""
        if not self.take(name):
            raise FormulaError(f"lacks a closing {name!r}")

    def is_braced(self, *names: str) -> bool:
        """Whether one of these signs comes next in braces of its own."""
        shape = self.tokens[self.at : self.at + 3]
        texts = [token.text for token in shape if token.kind == "op"]
        return len(texts) == 3 and texts[0] == "{" and texts[1] in names and texts[2] == "}"

    def starts_factor(self) -> bool:
        """Whether a factor follows without a sign; a number right after a number is none."""
        token = self.peek()
        if token is None or token.kind == "end":
            return False
        if token.kind == "num":
            before = self.tokens[self.at - 1]
            return not (before.kind == "num" or (before.kind == "op" and before.text in "!%"))
        if token.kind == "op":
            if token.text == "|":
                return self.bars == 0 and any(
                    later.kind == "op" and later.text == "|" for later in self.tokens[self.at + 1 :]
                )
            return token.text in BRACKETS or token.text == "dots"
        return True

    def unaligned(self, name: str) -> None:
        """Drop the marks that only align the lines of an environment from here to its end."""
        end = next(
            (i for i in range(self.at, len(self.tokens)) if self.tokens[i].kind == "end"),
            len(self.tokens),
        )
        inner = [
            token
            for token in self.tokens[self.at : end]
            if token.kind != "op" or token.text not in ("&", "\\\\")
        ]
        self.tokens[self.at : end] = inner

    def close_environment(self, name: str) -> None:
        """Pass the end of an environment. Raises FormulaError."""
        token = self.peek()
        if token is None or token.kind != "end" or token.text != name:
            raise FormulaError(f"has an environment {name} that does not close")
        self.at += 1
