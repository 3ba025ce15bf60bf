"""The `math` scorer: typed comparison, exact forms, an algebra system that can be killed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from labelkit.records import Abstention, Reply, Score, Task, Verdict
from labelkit.scorers import Binding
from labelkit.scorers.algebra import equal, form_of
from labelkit.scorers.formula import MAX_CHARACTERS, FormulaError
from labelkit.scorers.formula_compare import Comparison
from labelkit.scorers.formula_parser import parse
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Scorer
from tests.scorers.scripted import ScriptedDraw, scorer

SAME = {
    r"\frac{1}{2}": [r"\tfrac12", r"\frac 1 2", "1/2", "0.5", r"\frac{-1}{-2}", "½",
                     r"\text{The answer is } \frac12"],
    r"\frac{\sqrt{2}}{2}": [r"\frac{1}{\sqrt{2}}", r"\sqrt{2}/2", "sqrt(2)/2", r"\sqrt{\frac12}"],
    r"2\sqrt{3}": [r"\sqrt{12}", "2√3", r"2 \cdot \sqrt3", r"\frac{6}{\sqrt{3}}"],
    r"1+\sqrt{2}": [r"\frac{1}{\sqrt{2}-1}", r"\sqrt2 + 1"],
    r"\sqrt[3]{54}": [r"3\sqrt[3]{2}", "3 * 2^{1/3}"],
    r"2\pi": ["2π", "2*pi", r"\pi \cdot 2", r"2\pi \approx 6.28", r"2\pi \text{ cm}"],
    "(1,2)": ["(1, 2)", r"\left(1,2\right)", "(x,y)=(1,2)", r"\langle 1, 2\rangle"],
    "[0,1]": [r"0 \le x \le 1", r"x \in [0,1]", r"1 \geq x \geq 0"],
    r"(0,\infty)": [r"(0,+\infty)", "x>0", "0<x"],
    r"(-\infty, 2]": [r"x \leq 2", r"2 \ge x"],
    r"(-\infty,-1)\cup(1,\infty)": [r"(1,\infty)\cup(-\infty,-1)", r"x<-1 \text{ or } x>1"],
    r"(0,2)": [r"(0,1]\cup(1,2)"],
    r"\{1,2,3\}": [r"\{3,2,1\}", "1,2,3", r"\{1,2,3,3\}", r"\{1,2\}\cup\{3\}"],
    r"\emptyset": [r"\{\}", r"\varnothing", "∅"],
    "1, 2": ["2, 1", r"1 \text{ and } 2", r"x=1 \text{ or } x=2", "x_1=1, x_2=2", r"\{1,2\}"],
    "1, 200": ["200, 1"],
    r"\pm 2": ["2, -2", r"x = \pm 2"],
    r"\frac{-1\pm\sqrt{5}}{2}": [r"\frac{-1+\sqrt5}{2}, \frac{-1-\sqrt5}{2}"],
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": [r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
        "[[1, 2], [3, 4]]", r"\left[\begin{array}{cc}1&\frac42\\3&4\\\end{array}\right]"],
    "x^2-1": ["(x-1)(x+1)", "-1+x^2", r"\frac{x^4-1}{x^2+1}"],
    r"\frac{x+2}{7}": [r"\frac{x}{7}+\frac{2}{7}", "(2+x)/7"],
    "2^{n+1}": [r"2 \cdot 2^n", r"\frac{4^n \cdot 2}{2^n}"],
    "e^{2x}": ["(e^x)^2", r"\exp(2x)"],
    r"\log_2 8": ["3"],
    r"\ln 2": [r"\log_e 2", r"\ln(2)"],
    "3+4i": ["4i+3", r"3 + 4.0 i"],
    "-1": ["i^2"],
    "y=2x+1": ["y = 1+2x", "2x+1", "2x - y + 1 = 0"],
    "2x+4y-3=0": [r"y = -\frac{1}{2}x + \frac{3}{4}"],
    "x^2+y^2=4": ["x^2+y^2-4=0", "2x^2 + 2y^2 = 8"],
    "x=5,y=7": ["y=7, x=5"],
    "x=5": ["5", "x = 5.0"],
    r"\sin 30^\circ": [r"\frac12"],
    "10-4n": ["-4n+10", "10-4 n"],
    r"\binom{5}{2}": ["10"],
    r"\text{yes}": ["yes", r"\text{Yes}", r"\textbf{yes}"],
    r"\text{(C)}": ["C", "(C)"],
    r"\text{no solution}": ["no solution"],
    r"\infty": [r"+\infty", "∞"],
    r"\mathbb{R}": [r"(-\infty,\infty)", "ℝ"],
    r"|x-1|": ["|x-1|"],
    r"7^{7^7}": ["7^{7^7}"],
    "F_n = F_{n-1}+F_{n-2}": ["F_n = F_{n-2}+F_{n-1}"],
    "7": [r"\begin{aligned} x &= 7 \end{aligned}", "3+4", "x = 3+4 = 7"],
    r"\begin{cases} 1 & x>0 \\ 0 & x\le 0 \end{cases}":
        [r"\begin{cases} 0 & x\leq 0 \\ 1 & x>0 \end{cases}"],
}  # fmt: skip
DIFFERENT = {
    r"\frac{1}{2}": ["2", r"\frac{2}{1}", "-0.5", r"\frac{1}{x}"],
    r"\frac{1}{3}": ["0.33", "0.333"],
    r"2\sqrt{3}": [r"\sqrt{6}", "3.4641", r"2\sqrt{2}"],
    r"\pi": ["3.14", r"\frac{22}{7}", r"2\pi"],
    "(1,2)": ["(2,1)", "(1,2,3)", "[1,2]", r"\{1,2\}", "(1,3)"],
    "[2,5)": ["(2,5)", "[2,5]", r"2 \le x \le 5"],
    "D = (0, 1)": ["D = (0, 1.5)", "E = (0, 1)"],
    r"(-\infty,0)\cup(0,\infty)": [r"(-\infty,\infty)", r"\mathbb{R}"],
    r"(0,9)\cup(9,36)": ["(0,36)", r"(0,9]\cup(9,36)"],
    r"x \le 2": ["x < 2", r"x \ge 2", r"y \le 2"],
    r"\{1,2\}": [r"\{1,2,3\}", r"\{1\}", "(1,2)"],
    r"\emptyset": ["0", r"\{0\}"],
    "1,2,3": ["1,2", "1,2,4", "6"],
    "n=2, 3, 4": ["n=1, 2, 3"],
    "1331 and 1728": ["1728", r"1331 \text{ or } 1728, 5"],
    r"1, 2, \ldots, n": [r"1, 3, 5, \ldots, 2n-1", "1, 2, n"],
    r"1:2:3:\ldots": [r"1:4:9:\ldots"],
    r"\pm 2": ["2", "4"],
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}":
        [r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"],
    r"\begin{pmatrix} 1 & 2 \end{pmatrix}": [r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"],
    "3k": ["3", "k", "3+k"],
    "x^2-1": ["x^2+1", "(x-1)^2", "x^{2-1}"],
    "a^2b": ["ab^2", "(ab)^2"],
    "x_{12}": ["x_1 2", "x_1", "x"],
    "2^n": ["n^2", "2n"],
    r"\sin^2 x": [r"\sin x^2", r"\cos^2 x"],
    r"\ln 2": [r"\log_{10} 2", "0.693"],
    "3+4i": ["3-4i", "5", "7i"],
    "y=2x+1": ["y=2x-1", "x=2y+1"],
    "x^2+y^2=4": ["x^2+y^2=2", "4"],
    "x=5,y=7": ["x=7, y=5"],
    "x=5": ["y=5", "x=6"],
    r"\frac{\pi}{2}": ["90", r"\frac{\pi}{3}"],
    "30^\\circ": [r"60^\circ", r"30\pi"],
    r"\text{yes}": [r"\text{no}", "1"],
    r"\infty": [r"-\infty", "0"],
    r"\mathbb{R}": [r"\mathbb{Z}"],
    r"|x|": ["x", "-x"],
    r"\overline{AB}": [r"\overline{AC}", "AB"],
    r"\triangle ABC": [r"\triangle ABD"],
    r"p \land q": [r"p \lor q"],
    r"\begin{cases} 1 & x>0 \\ 0 & x\le 0 \end{cases}":
        [r"\begin{cases} 0 & x>0 \\ 1 & x\le 0 \end{cases}"],
    "2^{100}": ["1267650600228229401496703205377"],
    "7^{7^7}": ["7^{7^8}"],
    "12": ["x > 12", "12x", "(12, 13)", r"12 \text{ or } 13", r"\frac{12}{}", "12 13", r"7 \\ 12"],
    "7": ["__import__('os').system('touch x')", "().__class__", "{0.__class__}", "lambda: 7",
          r"\input{/etc/passwd}", "import os"],
}  # fmt: skip
NEEDS_ALGEBRA_SYSTEM = [
    (r"\tan^2(y)+1", r"\sec^2(y)", True),
    (r"\sin 2x", r"2\sin x\cos x", True),
    (r"\sin 2x", r"\sin x\cos x", False),
    (r"\ln 6", r"\ln 2+\ln 3", True),
    (r"\ln 6", r"\ln 2 \cdot \ln 3", False),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n} k", True),
    (r"\frac{n(n+1)}{2}", r"\binom{n}{2}", False),
    (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}", True),
    (r"\frac{1}{2}", r"\int_0^1 x\,dx", True),
    (r"1", r"\lim_{x \to 0} \frac{\sin x}{x}", True),
    ("x", "(x+1)^{100000}", False),
    ("1", r"\prod_{k=1}^{10000000} k", False),
    ("5000050000", r"\sum_{k=1}^{100000} k", True),
    ("5000050001", r"\sum_{k=1}^{100000} k", False),
    ("1", r"\int_0^1 e^{x^x} \sin(x^x)\,dx", False),
    (r"\frac{\sqrt{\pi}}{2}", r"\int_0^\infty e^{-x^2}\,dx", True),
    (r"\frac{\pi^2}{6}", r"\sum_{k=1}^{\infty} \frac{1}{k^2}", True),
    (r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}", r"F_n = \sum_{k=0}^{n-2} F_k F_{n-k-2}", False),
    (r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}", r"F_n = \sum_{k=0}^{n-1} F_{n-k-1} F_k", True),
]
NOT_DECIDED = [
    ("0", r"\sin(10^{10^{10}})"),
    ("x", "x^{9^{9^9}}"),
]


@pytest.fixture
async def bound() -> AsyncIterator[Scorer]:
    section: JsonValue = {"math": {"timeout_s": 30.0}}
    scorer = parse_scorer(section).bind(Binding(folder=Path(), processes=1))
    yield scorer
    await scorer.close()


async def scored(bound: Scorer, gold: JsonValue, reply: str) -> Verdict:
    task = Task(id="t", prompt="p", gold=gold)
    assert bound.check_gold(task) is None
    return await bound.score(task, Reply(text=reply), ScriptedDraw())


async def test_equal_answers_pass_whatever_their_spelling(bound: Scorer) -> None:
    for gold, answers in SAME.items():
        for answer in answers:
            found = await scored(bound, gold, f"We get \\boxed{{{answer}}}.")
            assert isinstance(found, Score), (gold, answer, found)
            assert found.passed, (gold, answer, found)


async def test_other_answers_fail(bound: Scorer) -> None:
    for gold, answers in DIFFERENT.items():
        for answer in answers:
            found = await scored(bound, gold, f"We get \\boxed{{{answer}}}.")
            assert isinstance(found, Score), (gold, answer, found)
            assert not found.passed, (gold, answer, found)


async def test_algebra_system_settles_what_normal_forms_leave_open(bound: Scorer) -> None:
    for gold, answer, passes in NEEDS_ALGEBRA_SYSTEM:
        found = await scored(bound, gold, f"\\boxed{{{answer}}}")
        assert isinstance(found, Score), (gold, answer, found)
        assert found.passed is passes, (gold, answer, found)


async def test_what_cannot_be_decided_is_unscored_with_a_reason(bound: Scorer) -> None:
    for gold, answer in NOT_DECIDED:
        found = await scored(bound, gold, f"\\boxed{{{answer}}}")
        assert isinstance(found, Abstention), (gold, answer, found)
        assert found.reason


async def test_a_second_answer_that_may_be_another_is_unscored(bound: Scorer) -> None:
    for gold, reply in (
        ("0", r"\boxed{\sin(10^{10^{10}})}, that is \boxed{0}"),
        ("x", r"\boxed{x^{9^{9^9}}} = \boxed{\frac{2x}{2}}"),
        ("0", r"\boxed{\sin(10^{10^{10}})} = \boxed{\sin(10^{10^{10}})}"),
        ("x", r"\boxed{\frac{3x}{3}} = \boxed{x^{9^{9^9}}}"),
    ):
        found = await scored(bound, gold, reply)
        assert isinstance(found, Abstention), (reply, found)
        assert found.reason


async def test_a_reply_that_is_wrong_whatever_its_second_answer_is_fails(bound: Scorer) -> None:
    for gold, reply, reason in (
        ("1", r"\boxed{\sin(10^{10^{10}})}, that is \boxed{0}", "another value"),
        ("x", r"\boxed{x^{9^{9^9}}} = \boxed{2x}", "another value"),
        ("x", r"\boxed{y} = \boxed{x^{9^{9^9}}} = \boxed{x}", "gives different answers"),
    ):
        found = await scored(bound, gold, reply)
        assert isinstance(found, Score), (reply, found)
        assert not found.passed
        assert reason in str(found.reason)


@pytest.mark.parametrize(
    ("gold", "reply", "passes"),
    [
        ("3, 5", r"The roots are \boxed{3} and \boxed{5}.", True),
        ("3, 5", r"The root is \boxed{5}.", False),
        ("5", r"The roots are \boxed{3} and \boxed{5}.", False),
        ("5", r"either \boxed{5} or \boxed{6}", False),
        (r"\frac12", r"\boxed{0.5}, that is \boxed{\frac12}", True),
        ("x+2", "The answer is $x+2$ because of symmetry.", True),
        ("x+2", "The answer is x + 2, since x is even.", True),
        ("x+2", "So the simplified expression is $2 + x$.", True),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "The matrix is [[1, 2], [3, 4]].", True),
        ("D = (0, 1)", "$D = (0, 1)$", True),
        (r"\{1,3\} \cup \{2,4\}", "${1,2,3,4}$", True),
        (r"\dfrac{\pi}{2}", "The final answer is pi/2", True),
        ("14 - i", "The final answer is 14.0 + -1.0i", True),
        ("5", "I found x. It may be 5.", False),
        ("5", "", False),
    ],
)
async def test_answers_are_read_out_of_replies(
    bound: Scorer, gold: str, reply: str, passes: bool
) -> None:
    found = await scored(bound, gold, reply)
    assert isinstance(found, Score), found
    assert found.passed is passes, found


@pytest.mark.parametrize(
    ("gold", "answer", "passes"),
    [
        ("(x-1)(x+1)", "x^2-1", False),
        ("(x-1)(x+1)", "(x+1)(x-1)", True),
        ("(x-1)(x+1)", r"\left(x - 1\right) \cdot (1+x)", True),
        (r"\frac12", r"\dfrac{1}{2}", True),
        (r"\frac12", "0.5", False),
        (r"\frac12", r"\frac24", False),
        ("1024", "2^{10}", False),
        (r"\sqrt{12}", r"2\sqrt3", False),
        ("2<x", "x>2", True),
    ],
)
async def test_form_same_wants_the_golds_own_form(gold: str, answer: str, passes: bool) -> None:
    bound = scorer({"math": {"form": "same"}})
    found = await bound.score(
        Task(id="t", prompt="p", gold=gold), Reply(text=f"\\boxed{{{answer}}}"), ScriptedDraw()
    )
    assert isinstance(found, Score)
    assert found.passed is passes


@pytest.mark.parametrize("gold", [*SAME, *DIFFERENT, 42, 0.5, "9" * 5000, r"\sum_{k=1}^n a_k"])
def test_usable_golds_are_accepted(gold: JsonValue) -> None:
    assert scorer("math").check_gold(Task(id="t", prompt="p", gold=gold)) is None


@pytest.mark.parametrize(
    "gold",
    [None, True, "", [1], r"\frac{1}{", "(1, 2", r"x_1 2", "1 +", r"\sqrt", "x" * 3000, "1e99999"],
)
def test_golds_that_are_not_consumed_whole_are_faults(gold: JsonValue) -> None:
    assert scorer("math").check_gold(Task(id="t", prompt="p", gold=gold))


@pytest.mark.parametrize(
    "text",
    ["((((((" * 60, r"\frac{" * 300, "{" * 500 + "}" * 500, "-" * 1500, "x" * (MAX_CHARACTERS + 1),
     "|" * 700, "1" + "+1" * 990, r"\sqrt" * 300, "[" * 90 + "]" * 90, "a^" * 500 + "a",
     "-" * 1100 + "1", "1" + "/2" * 590],
)  # fmt: skip
def test_parsing_is_bounded(text: str) -> None:
    try:
        node = parse(text)
    except FormulaError:
        return
    assert sum(1 for _ in node.walk()) <= MAX_CHARACTERS


VARIABLES = ["x", "y", "n"]
NUMBERS = st.fractions(min_value=-9, max_value=9, max_denominator=6)
Polynomial = dict[tuple[int, int, int], Fraction]
POLYNOMIALS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)),
    NUMBERS,
    min_size=1,
    max_size=4,
)


def latex(polynomial: Polynomial, order: list[tuple[int, int, int]], style: int) -> str:
    """One of several spellings of a polynomial."""
    terms = []
    for powers in order:
        value = polynomial[powers]
        number = f"{value.numerator}/{value.denominator}"
        if style == 1:
            number = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        if style == 2:
            number = f"{value.numerator} \\cdot \\left({value.denominator}\\right)^{{-1}}"
        factors = "".join(
            (f"{name}^{{{power}}}" if style else f"*{name}^{power}")
            for name, power in zip(VARIABLES, powers, strict=True)
            if power
        )
        terms.append(f"({number}){factors}")
    return " + ".join(terms)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(POLYNOMIALS, st.integers(0, 2), st.integers(0, 2), st.randoms(), NUMBERS)
def test_polynomial_gold_verifies_in_any_form_and_never_perturbed(
    polynomial: Polynomial, style: int, other: int, order: object, step: Fraction
) -> None:
    keys = list(polynomial)
    mixed = list(keys)
    getattr(order, "shuffle")(mixed)  # noqa: B009
    gold = parse(latex(polynomial, keys, style))
    assert Comparison().same(gold, parse(latex(polynomial, mixed, other))) is True
    changed = {**polynomial, mixed[0]: polynomial[mixed[0]] + (step or 1)}
    assert Comparison().same(gold, parse(latex(changed, mixed, other))) is False


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 30))
def test_square_roots_have_one_normal_form(a: int, b: int, c: int) -> None:
    root = form_of(parse(f"\\sqrt{{{a * c * c}}}"))
    assert equal(root, form_of(parse(f"{c}\\sqrt{{{a}}}"))) is True
    together = form_of(parse(f"\\sqrt{{{a}}}\\sqrt{{{b}}}"))
    assert equal(together, form_of(parse(f"\\sqrt{{{a * b}}}"))) is True
    assert equal(root, form_of(parse(f"\\sqrt{{{a * c * c + 1}}}"))) is False


@given(st.text(alphabet="xyz123+-*/^_(){}[]|,.<>=\\ fracsqrtpi!%'&", max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        node = parse(text)
    except FormulaError:
        return
    assert Comparison().same(node, node) is not False


async def test_hanging_replies_cost_their_limit_and_change_no_other_verdict() -> None:
    """200 replies that hang the algebra system among 5,000, with a wall clock of 0.2 s."""
    bound = parse_scorer({"math": {"timeout_s": 0.2}}).bind(Binding(folder=Path(), processes=6))
    hanging = r"\boxed{\sum_{k=1}^{19000} \sin(k^2 + \sqrt{k})}"
    verdicts: dict[int, Verdict] = {}
    numbers = iter(range(5_000))

    async def work() -> None:
        for number in numbers:
            task = Task(id="t", prompt="p", gold="x^2-1" if number % 25 else "1")
            reply = "\\boxed{(x-1)(x+1)}" if number % 2 else "\\boxed{(x-1)(x-2)}"
            text = reply if number % 25 else hanging
            verdicts[number] = await bound.score(task, Reply(text=text), ScriptedDraw())

    await asyncio.gather(*(work() for _ in range(8)))
    workers = children()
    assert workers
    await bound.close()
    for number, found in verdicts.items():
        if number % 25:
            assert isinstance(found, Score)
            assert found.passed is bool(number % 2)
        else:
            assert isinstance(found, Abstention)
            assert "killed after 0.2 s" in found.reason
    assert children() & workers == set()


def children() -> set[int]:
    """The processes that this one started and has not reaped (Linux)."""
    listed = Path(f"/proc/{os.getpid()}/task")
    if not listed.is_dir():
        return set()
    return {
        int(pid) for task in listed.iterdir() for pid in (task / "children").read_text().split()
    }
