"""LaTeX, plain and Unicode mathematics as one stream of tokens.

Layout (sizes, spaces, delimiters, alignment) vanishes here, spellings of one sign become one. A
sign that is not known becomes a token of its own, so that nothing is dropped in silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from labelkit.scorers.formula import (
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    MAX_TOKENS,
    NUMBER_SETS,
    FormulaError,
    greek_letter,
)
from labelkit.scorers.numbers import PLAIN, Literal, read_literal
from labelkit.scorers.units import is_known


@dataclass(frozen=True, slots=True)
class Token:
    """kind: `num` · `sym` · `const` · `func` · `word` · `cmd` (a LaTeX command with arguments) ·
    `begin`, `end` (environments) · `op` (one sign, under its name). `spaced`: blanks stand before.
    """

    kind: str
    text: str
    literal: Literal | None = None
    spaced: bool = False


_IGNORED_NAMES = (
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr "
    "displaystyle textstyle scriptstyle limits nolimits quad qquad rm bf it hfill phantom "
    "nonumber boldsymbol mathop mathrel mathord boxed fbox mathstrut enspace thinspace , ; ! "
    ": > / @"
)
_IGNORED = frozenset(_IGNORED_NAMES.split())
_TEXTS_NAMES = (
    "text mbox hbox textbf textit textrm textsf texttt textnormal mathrm mathbf mathit mathsf "
    "mathtt operatorname bm emph"
)
_TEXTS = frozenset(_TEXTS_NAMES.split())
_ACCENTS_NAMES = (
    "overline bar vec hat tilde dot ddot widehat widetilde underline overrightarrow mathbb "
    "mathcal mathscr mathfrak angle triangle measuredangle"
)
_ACCENTS = frozenset(_ACCENTS_NAMES.split())
_OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "±", "le": "<=",
    "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<", "gt": ">",
    "ne": "!=", "neq": "!=", "approx": "≈", "simeq": "≈", "equiv": "≡", "sim": "~", "cong": "≅",
    "in": "in", "notin": "notin", "cup": "cup", "cap": "cap", "bigcup": "cup", "bigcap": "cap",
    "setminus": "minus", "backslash": "minus", "to": "to", "rightarrow": "to", "mapsto": "mapsto",
    "implies": "=>", "Rightarrow": "=>", "iff": "<=>", "Leftrightarrow": "<=>", "subset": "subset",
    "subseteq": "subseteq", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|", "|": "‖",
    "Vert": "‖", "lVert": "‖", "rVert": "‖", "lbrace": "\\{", "rbrace": "\\}", "{": "\\{",
    "}": "\\}", "lbrack": "[", "rbrack": "]", "langle": "<(", "rangle": ")>", "lfloor": "⌊",
    "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "ldots": "dots", "dots": "dots", "cdots": "dots",
    "dotsc": "dots", "dotsb": "dots", "vdots": "dots", "ddots": "dots", "circ": "circ",
    "degree": "degree", "prime": "'", "land": "∧", "wedge": "∧", "lor": "∨", "vee": "∨",
    "%": "%", "&": "&", "colon": ":", "parallel": "‖", "perp": "perp", "forall": "forall",
    "exists": "exists", "oplus": "oplus", "otimes": "otimes", "\\": "\\\\", "newline": "\\\\",
}  # fmt: skip
_SETS = {"emptyset": "∅", "varnothing": "∅", **NUMBER_SETS}
_SIGNS = {
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "±": "±", "∓": "±", "≤": "<=", "⩽": "<=",
    "≥": ">=", "⩾": ">=", "≠": "!=", "≈": "≈", "≡": "≡", "∈": "in", "∉": "notin", "∪": "cup",
    "∩": "cap", "∖": "minus", "→": "to", "⟹": "=>", "⇒": "=>", "⇔": "<=>",
    "∘": "circ", "°": "degree", "⌊": "⌊", "⌋": "⌋", "⌈": "⌈", "⌉": "⌉", "∣": "|", "‖": "‖",
    "⟨": "<(", "⟩": ")>", "⋯": "dots", "⊂": "subset", "⊆": "subseteq", "⊥": "perp",
}  # fmt: skip
_PAIRS = ("...", "<=>", "<=", ">=", "!=", "==", "=>", "->", "**", "||")
_PAIR_NAMES = {"...": "dots", "==": "=", "->": "to", "**": "^", "||": "‖"}
_SINGLE = "+-*/^_()[]{}|,;:!%=<>&'~."
_RELATION = re.compile(r"[<>=]|\\(?:le|ge|lt|gt|in|ne)[qst]?(?![a-z])")
_NUMBER_SETS = frozenset("ℝℕℤℚℂ")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_LETTERS = re.compile(r"[A-Za-z]+")
_BRACED = re.compile(r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ENVIRONMENT = re.compile(r"\s*\{([A-Za-z]+\*?)\}(?:\{[^{}]*\}|\[[^\]]*\])?")
_PLAIN = re.compile(PLAIN)
_JOINING = {"and": "and", "or": "or", "union": "cup", "in": "in"}
_DEGREE_WORDS = frozenset(["degree", "degrees", "deg"])
_SHORT_WORDS_NAMES = (
    "yes no the odd all red not is are one two ten six none even dne tie day cat dog mon tue "
    "wed thu fri sat sun jan feb mar apr jun jul aug sep oct nov dec of to by at an if am"
)
_SHORT_WORDS = frozenset(_SHORT_WORDS_NAMES.split())


def tokenize(text: str, *, grouping: bool = True) -> list[Token]:
    """The tokens of a folded text. `grouping`: 1,000 is one number, else a list of two.

    Raises FormulaError on more than MAX_TOKENS tokens or a number past the caps.
    """
    return _Tokenizer(text, grouping).run()


class _Tokenizer:
    def __init__(self, text: str, grouping: bool) -> None:
        self.text = text
        self.grouping = grouping
        self.at = 0
        self.spaced = False
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            if len(self.tokens) > MAX_TOKENS:
                raise FormulaError("has too many parts")
            self._step()
        return self.tokens

    def emit(self, kind: str, text: str, literal: Literal | None = None) -> None:
        self.tokens.append(Token(kind, text, literal, self.spaced))
        self.spaced = False

    def op(self, name: str) -> None:
        self.emit("op", name)

    def _step(self) -> None:
        char = self.text[self.at]
        if char.isspace() or char in "~$`":
            self.at += 1
            self.spaced = True
        elif char == "\\":
            self._command()
        elif char.isdigit() or (char == "." and self.text[self.at + 1 : self.at + 2].isdigit()):
            self._number()
        elif char.isascii() and char.isalpha():
            self._letters()
        else:
            self._sign(char)

    def _number(self) -> None:
        try:
            if self.grouping and not (self.tokens and self.tokens[-1].text in ("_", "^")):
                found = read_literal(self.text, self.at)
            else:
                plain = _PLAIN.match(self.text, self.at)
                end = plain.end() if plain else self.at
                found = read_literal(self.text[self.at : end])
                found = (found[0], self.at + found[1]) if found else None
        except OverflowError as error:
            raise FormulaError(str(error)) from None
        if found is None:
            raise FormulaError("has a number that cannot be read")
        self.at = found[1]
        self.emit("num", "", found[0])

    def _sign(self, char: str) -> None:
        for pair in _PAIRS:
            if self.text.startswith(pair, self.at):
                self.at += len(pair)
                self.op(_PAIR_NAMES.get(pair, pair))
                return
        self.at += 1
        greek = None if char.isascii() else greek_letter(char)
        if greek is not None:
            self._named(greek)
        elif char in _SIGNS:
            self.op(_SIGNS[char])
        elif char in "∧∨":
            self._connective(char)
        elif char in _NUMBER_SETS:
            self.emit("sym", char)
        elif char == "∞":
            self.emit("const", "oo")
        elif char == "∅":
            self.emit("sym", "∅")
        elif char in "√∛":
            self.emit("func", "sqrt" if char == "√" else "cbrt")
        elif char == "." and not self.text[self.at :].strip(" .$"):
            return
        elif char in _SINGLE:
            self.op(char)
        elif char.isalpha():
            self.emit("word", char)
        else:
            self.op(char)

    def _connective(self, sign: str) -> None:
        """Between inequalities a word; between propositions a sign of its own."""
        if _RELATION.search(self.text):
            self.op("and" if sign == "∧" else "or")
        else:
            self.emit("sym", sign)

    def _named(self, name: str) -> None:
        if name in CONSTANTS:
            self.emit("const", CONSTANTS[name])
        else:
            self.emit("sym", GREEK.get(name, name))

    def _letters(self) -> None:
        run = _LETTERS.match(self.text, self.at)
        assert run is not None
        word = run[0]
        self.at = run.end()
        lower = word.lower()
        if len(word) == 1:
            self.emit("const" if word in "ei" else "sym", word)
        elif word in FUNCTIONS or lower in FUNCTIONS:
            self.emit("func", FUNCTIONS.get(word) or FUNCTIONS[lower])
        elif word in CONSTANTS or word in GREEK or lower in CONSTANTS:
            self._named(word if word in GREEK else lower if lower in CONSTANTS else word)
        elif lower in _JOINING and self.spaced:
            self.op(_JOINING[lower])
        elif lower in _DEGREE_WORDS:
            self.op("degree")
        elif lower == "percent":
            self.op("%")
        elif word[:-1] in FUNCTIONS:
            self.emit("func", FUNCTIONS[word[:-1]])
            self.emit("sym", word[-1])
        elif len(word) >= 4 or lower in _SHORT_WORDS or is_known(word):
            self.emit("word", word)
        else:
            for letter in word:
                self.emit("const" if letter in "ei" else "sym", letter)

    def _command(self) -> None:
        found = _COMMAND.match(self.text, self.at)
        if found is None:
            raise FormulaError("ends in a backslash")
        name = found[1]
        self.at = found.end()
        if name in _IGNORED or name in "()[] $\n\t":
            if name in ("left", "right") and self.text[self.at : self.at + 1] == ".":
                self.at += 1
            self.spaced = True
        elif name in ("begin", "end"):
            environment = _ENVIRONMENT.match(self.text, self.at)
            if environment is None:
                raise FormulaError("has an environment without a name")
            self.at = environment.end()
            self.emit(name, environment[1].rstrip("*"))
        elif name in _TEXTS:
            self._text_argument()
        elif name in _OPERATORS and _OPERATORS[name] not in "∧∨":
            self.op(_OPERATORS[name])
        elif name in _OPERATORS:
            self._connective(_OPERATORS[name])
        elif name in FUNCTIONS:
            self.emit("func", FUNCTIONS[name])
        elif name in CONSTANTS or name in GREEK:
            self._named(name)
        elif name in ("imath", "mathi"):
            self.emit("const", "i")
        elif name in _SETS:
            self.emit("sym", _SETS[name])
        elif name in ("dfrac", "tfrac", "cfrac", "frac"):
            self.emit("cmd", "frac")
        elif name in ("binom", "dbinom", "tbinom", "sum", "prod", "int", "iint", "oint", "lim"):
            self.emit("cmd", name.lstrip("dt") if name.endswith("binom") else name)
        elif name in _ACCENTS:
            self.emit("cmd", name)
        elif name in ("pmod", "bmod", "mod"):
            self.op("mod")
        else:
            self.emit("sym", "\\" + name)

    def _text_argument(self) -> None:
        braced = _BRACED.match(self.text, self.at)
        if braced is None:
            return
        self.at = braced.end()
        content = braced[1].strip()
        bare = content.strip("() .,;:")
        if not content:
            self.spaced = True
        elif content.lower() in _JOINING:
            self.op(_JOINING[content.lower()])
        elif bare.lower() in _DEGREE_WORDS:
            self.op("degree")
        elif _is_formula(content):
            for token in tokenize(content, grouping=self.grouping):
                self.tokens.append(token)
        elif content in FUNCTIONS:
            self.emit("func", FUNCTIONS[content])
        else:
            self.emit("word", content)


def _is_formula(content: str) -> bool:
    """Whether a text argument holds mathematics: digits or signs, a single letter, a command."""
    if content.startswith("\\") or len(content) == 1:
        return True
    return not any(len(run) > 1 for run in _LETTERS.findall(content)) and "(" not in content
