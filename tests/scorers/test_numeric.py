"""The `numeric` scorer: exact numbers in all their spellings, hedges, units, policies."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from labelkit.records import Reply, Score, Task
from labelkit.scorers import Binding
from labelkit.scorers.numeric import Tolerance
from labelkit.scorers.parse import parse_scorer
from tests.scorers.scripted import ScriptedDraw, scorer, verdict

DATA = Path(__file__).parents[2] / "data"


def scored(gold: JsonValue, reply: str, **settings: JsonValue) -> Score:
    found = verdict({"numeric": settings}, reply, gold)
    assert isinstance(found, Score)
    return found


SAME = {
    "9500": [r"\boxed{9,500}", r"\boxed{9{,}500}", r"\boxed{9\,500}", "The answer is 9 500."],
    "1000": [r"\boxed{1'000}", "#### 1,000", r"\boxed{10^3}", r"\boxed{1E3}", r"\boxed{1000.0}"],
    "100000": ["#### 1,00,000", r"\boxed{10⁵}", r"\boxed{10^5}", r"\boxed{1.0 \times 10^{5}}"],
    "1234567.5": [r"\boxed{1.234.567,5}", r"\boxed{1,234,567.50}"],
    "1": [r"\boxed{1.000}", r"\boxed{\frac{3}{3}}"],
    "-7": ["x = –7, so \\boxed{–7}", r"\boxed{−7}", "The answer is minus seven.", r"-\boxed{7}"],
    "42": ["答案是４２。", "The answer is ٤٢.", "The answer is forty-two.", "The answer is 42!",
           "**Answer:** 42", "### Answer\n42", "Final Answer:\n\n$$\n42\n$$", "Answer -> 42",
           "The answer is [42]", "<answer>42</answer>", r"\boxed{\text{42}}", r"\boxed{n = 42}",
           "The answer is therefore 42.", "6*7=42, so he has 42 apples.", "= 42", '"42"',
           "Réponse : 42", "Die Antwort ist 42.", "The answer is 42 since 6*7=42.",
           "#### 42\nAll of this was checked twice.", r"\fbox{42}", r"\boxed{42}\boxed{42.0}"],
    "1.5": ["The answer is 1½.", r"\boxed{1\frac{1}{2}}", "The answer is 1 1/2.", r"\boxed{3/2}"],
    "-3.5": [r"\boxed{-3\frac{1}{2}}", r"\boxed{-\frac72}"],
    "1/3": [r"\boxed{0.\overline{3}}", "The answer is 0.333...", r"\boxed{\frac{2}{6}}"],
    "0.25": [r"\boxed{25\%}", "The share is 25 percent.", r"\boxed{\frac14}"],
    "25\\%": [r"\boxed{0.25}", r"\boxed{25}", r"\boxed{25\%}"],
    "25": [r"\boxed{25\%}"],
    "5 cm": [r"\boxed{5}", r"\boxed{5\text{ cm}}", "The side is 5 centimeters long.",
             r"\boxed{50\text{ mm}}"],
    "2 hours": [r"\boxed{120\text{ minutes}}", "The answer is two hours."],
    "5 apples": ["The answer is 5 red apples.", r"\boxed{5}"],
    "90^\\circ": ["The angle is 90°.", r"\boxed{90}", "The angle is 90 degrees."],
    "£18": ["The answer is 18 pounds.", r"\boxed{18}"],
    "7:30": ["The train leaves at 7:30 PM.", r"\boxed{07:30}"],
    "3:4": ["The ratio is 3 : 4.", r"\boxed{3/4}"],
    "101_2": [r"\boxed{101_{2}}", r"\boxed{101}"],
    "255": [r"\boxed{0xFF}", r"\boxed{0b11111111}"],
    "6.02e23": [r"\boxed{6.02 \times 10^{23}}", r"\boxed{6.02 \cdot 10^{23}}"],
    "1800000000": ["The answer is 1.8 billion."],
    "3628800": [r"\boxed{10!}"],
    "22/7": [r"\boxed{\frac{22}{7} \approx 3.142857}"],
    "3.14": [r"\boxed{\frac{22}{7} \approx 3.14}", "The answer is approximately 3.14."],
    "10^{400}": [r"\boxed{1 \times 10^{400}}", r"\boxed{1e400}"],
    "12345678901234567890": [r"\boxed{1.2345678901234567890e19}"],
    "x=5": [r"\boxed{5}", r"\boxed{5 = x}"],
    "0.5": ["The answer is one half.", "a half", "The answer is ½."],
    "2/3": ["The answer is two thirds."],
    "2.5": ["The answer is two and a half."],
    "205": ["The answer is two hundred and five."],
    "24": ["The answer is two dozen."],
    "12": ["The answer is 3 x 4 = 12.", "The answer is 12 (twelve).", "The answer is 12, not 13."],
    "11": [r"\boxed{1331^{1/3}}", r"\boxed{(11^{12})^{1/12}}", r"\boxed{0^{1/3} + 11}"],
    "7th": ["The answer is seventh.", r"\boxed{7}"],
    "500": ["The answer is Rs. 500.", "The answer is 500 EUR.", r"\boxed{\textcolor{red}{500}}"],
    "19:30": [r"\boxed{7:30 \text{ pm}}"],
    "90 °C": [r"\boxed{90^\circ\text{C}}", r"\boxed{90}"],
}  # fmt: skip
DIFFERENT = {
    "9500": ["The answer is 9.500.", r"\boxed{9,50,0}"],
    "1000": [r"\boxed{1,00}", r"\boxed{1.000}", r"\boxed{10^{3000}}", r"\boxed{999.9999999999999}"],
    "35": [r"\boxed{3,5}", r"\boxed{3, 5}"],
    "105": [r"\boxed{10⁵}", r"\boxed{10^5}"],
    "5.5": ["The answer is 1½.", r"\boxed{11\frac{1}{2}}"],
    "31/2": ["The answer is 3 1/2."],
    "7": [r"\boxed{-7}", r"-\boxed{7}", r"\boxed{7^2}", "There are 7 of them, I think; or not."],
    "8": ["The range is 3-8."],
    "-8": ["The range is 3-8, the answer is 8"],
    "25": [r"\boxed{0.25}"],
    "0.25": [r"\boxed{0.25\%}", r"\boxed{25}"],
    "5 cm": [r"\boxed{5\text{ m}}", r"\boxed{5\text{ cm}^2}", r"\boxed{5\text{ s}}"],
    "5 apples": ["The answer is 5 oranges."],
    "1": ["The answer is 1 hour 30 minutes.", r"\boxed{\infty}", r"\boxed{1e-400}"],
    "11.0": [r"\boxed{1332^{1/3}}", r"\boxed{1330^{1/3}}"],
    "0": [r"\boxed{1e-10}", r"\boxed{1/0}", r"\boxed{\text{None}}", r"\boxed{NaN}",
          "I don't know."],
    "1e-9": ["The answer is 2e-9", r"\boxed{0}"],
    "2": ["The answer is two dozen.", "The answer is two thirds.", "The answer is 2.5",
          r"\boxed{2x}", r"\boxed{x > 2}", r"\boxed{2 \neq 3}"],
    "6": [r"\boxed{2+3=6}", r"\boxed{5=6}"],
    "4": ["The answer is 4 2.", r"\boxed{x=3, y=4}", r"\boxed{4\sqrt{2}}", r"\boxed{4\sqrt(2)}"],
    "42_8": [r"\boxed{42_{16}}", r"\boxed{34}"],
    "7:30 PM": [r"\boxed{7:30 AM}"],
    "3:4": [r"\boxed{4:3}"],
    "2024": ["This was written in 2024."],
    "19:30": [r"\boxed{7:30 \text{ am}}", r"\boxed{19:31}"],
    "90 °C": [r"\boxed{90°F}"],
    "3": ["The answer is one third.", "The answers are x = 3 and y = 4."],
    "9007199254740993": [r"\boxed{9007199254740992}"],
    "\\frac{1}{2004!}": [r"\boxed{\frac{1}{2006!}}"],
}  # fmt: skip
NO_ANSWER = [
    "", "I don't know.", "The answer is 42 or 43.", "The answer is either 42 or 43.",
    "It could be 42.", "The answer might be 42.", "Maybe 42.", "The answer is 42?", "Is it 42?",
    "If the answer is 42, we are done.", "The answer is not 42.", "The answer is at least 42.",
    "The answer is about 42.", "The answer is between 40 and 42.", "The answers are 42 and 43.",
    "42, 43", "42 43", r"\boxed{41}\boxed{42}", r"\boxed{42} or \boxed{41}", r"\boxed{}",
    r"\boxed{42}. The final answer is \boxed{}", r"\boxed{42} and then \boxed{",
    r"\boxed{42} is wrong.", r"\boxed{42}. Actually, no, it is 43.", r"\boxed{42?}",
    r"\boxed{42 \text{ or more}}", r"\boxed{1, 2, 42}", "<think>The answer is 42",
    "Step 42: I give up.", "There are 42 options and I cannot decide.",
    "<answer>41</answer><answer>42</answer>", "#### 41\n#### 42",
]  # fmt: skip


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(gold, reply) for gold, replies in table.items() for reply in replies]


@pytest.mark.parametrize(("gold", "reply"), pairs(SAME))
def test_spellings_of_the_gold_pass(gold: str, reply: str) -> None:
    found = scored(gold, reply)
    assert found.passed, found


@pytest.mark.parametrize(("gold", "reply"), pairs(DIFFERENT))
def test_other_numbers_fail(gold: str, reply: str) -> None:
    assert not scored(gold, reply).passed


@pytest.mark.parametrize("reply", NO_ANSWER)
def test_hedges_and_replies_without_an_answer_are_wrong_with_that_reason(reply: str) -> None:
    text = reply if "<think>" not in reply else ""
    found = scored("42", text)
    assert not found.passed
    assert found.no_answer, found
    assert found.reason


def test_cut_reply_has_no_answer() -> None:
    found = verdict("numeric", Reply(text=r"\boxed{42}", cut=True), "42")
    assert isinstance(found, Score)
    assert found.no_answer


def test_verdict_names_answer_span_and_rule() -> None:
    text = r"First \boxed{14}. That is wrong; now \boxed{16}."
    found = scored("16", text)
    assert (found.answer, found.rule) == ("16", "boxed:last · same text")
    assert found.span is not None
    assert text[slice(*found.span)] == "16"
    assert scored("16", r"\boxed{16.0}").rule == "boxed:last · integer"


@pytest.mark.parametrize(
    ("settings", "gold", "reply", "passes"),
    [
        ({"tolerance": {"rel": 0.01}}, "100", r"\boxed{101}", True),
        ({"tolerance": {"rel": 0.01}}, "100", r"\boxed{101.0001}", False),
        ({"tolerance": {"abs": 0.1}}, "0.3", r"\boxed{0.4}", True),
        ({"tolerance": {"abs": 0.1}}, "0.3", r"\boxed{0.41}", False),
        ({"tolerance": {"rel": 0.01, "abs": 5.0}}, "100", r"\boxed{105}", True),
        ({"unit": "cm"}, "5", r"\boxed{5\text{ cm}}", True),
        ({"unit": "cm"}, "500", r"\boxed{5\text{ m}}", True),
        ({"unit": "cm"}, "5", r"\boxed{5\text{ m}}", False),
        ({"unit": "cm"}, "5", r"\boxed{5}", True),
        ({"units": "same"}, "5 m", r"\boxed{500\text{ cm}}", False),
        ({"percent": "value"}, "25", r"\boxed{25\%}", False),
        ({"percent": "value"}, "0.25", r"\boxed{25\%}", True),
        ({"answer": "boxed"}, "42", "The answer is 42.", False),
        ({"answer": {"after": "Result:"}}, "42", "Result: 41\nResult: 42 km", True),
        ({"answer": {"regex": r"x=(\d+)"}}, "42", "x=41, x=42!", True),
        ({"answer": "whole"}, "42", "42", True),
    ],
)
def test_policies_are_settings(
    settings: dict[str, JsonValue], gold: str, reply: str, passes: bool
) -> None:
    assert scored(gold, reply, **settings).passed is passes


def test_schema_field_is_the_answer() -> None:
    reply = Reply(text='{"steps": "6*7", "final_answer": 42}', parsed={"final_answer": 42})
    sections: list[JsonValue] = ["numeric", {"numeric": {"answer": {"field": "final_answer"}}}]
    for section in sections:
        found = verdict(section, reply, 42)
        assert isinstance(found, Score)
        assert found.passed


@pytest.mark.parametrize(
    "gold",
    ["42", 42, 4.5, "1/2", "1,000", "5 cm", "25\\%", "7:30", "52_8", "1e400", "$5", "9" * 5000],
)
def test_usable_golds_are_accepted(gold: JsonValue) -> None:
    assert scorer("numeric").check_gold(Task(id="t", prompt="p", gold=gold)) is None


@pytest.mark.parametrize(
    "gold",
    [None, True, "", "many", "3, 5", "3 or 4", "x+1", [1], {"a": 1}, "1e99999999", "10^{10^{10}}"],
)
def test_golds_that_are_no_single_number_are_faults(gold: JsonValue) -> None:
    assert scorer("numeric").check_gold(Task(id="t", prompt="p", gold=gold))


@pytest.mark.parametrize(
    "settings",
    [{"tolerance": {}}, {"tolerance": {"rel": 2.0}}, {"unit": ""}, {"answer": {"tag": "a b"}},
     {"answer": {"after": "A:", "boxed": "last"}}, {"answer": {"regex": r"(a)\1"}}],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(settings: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"(?s)."):
        parse_scorer({"numeric": settings})


async def test_authors_labels_of_gsm8k_are_agreed_with() -> None:
    bound = parse_scorer({"numeric": {"answer": {"after": "A:"}}}).bind(Binding(folder=DATA))
    rows = gzip.decompress((DATA / "gsm8k_model_solutions.jsonl.gz").read_bytes()).splitlines()
    agreed = total = 0
    for row in map(json.loads, rows):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        task = Task(id="t", prompt="p", gold=gold)
        assert bound.check_gold(task) is None
        for solution in (one for one in row.values() if isinstance(one, dict)):
            found = await bound.score(task, Reply(text=solution["solution"]), ScriptedDraw())
            total += 1
            agreed += isinstance(found, Score) and found.passed is solution["is_correct"]
    assert (agreed, total) == (5276, 5276)


def spellings(value: Fraction) -> list[str]:
    """Equivalent ways to write a rational with a finite decimal expansion."""
    sign, size = ("-" if value < 0 else ""), abs(value)
    places = 0
    while (size * 10**places).denominator != 1:
        places += 1
    digits = str(size * 10**places).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    decimal = f"{whole}.{part}" if part else whole
    grouped = f"{int(whole):,}" + (f".{part}" if part else "")
    found = [
        sign + decimal,
        sign + grouped,
        sign + grouped.replace(",", "{,}"),
        sign + grouped.replace(",", r"\,"),
        sign.replace("-", "−") + decimal.translate({48 + i: 0xFF10 + i for i in range(10)}),
        f"{sign}\\frac{{{size.numerator}}}{{{size.denominator}}}",
        f"{sign}{size.numerator}/{size.denominator}",
        sign + (decimal + "0" if part else decimal + ".0"),
        f"{sign}{size.numerator * 10}e-1" if size.denominator == 1 else sign + decimal,
        f"{sign}{decimal} \\times 10^{{0}}",
        f"\\text{{{sign}{decimal}}}",
        f"x = {sign}{decimal}",
    ]
    if size.denominator != 1 and size > 1:
        whole_part, rest = divmod(size.numerator, size.denominator)
        found.append(f"{sign}{whole_part}\\frac{{{rest}}}{{{size.denominator}}}")
    return found


RATIONALS = st.builds(
    lambda number, places: Fraction(number, 10**places),
    st.integers(-(10**12), 10**12),
    st.integers(0, 6),
)


@given(RATIONALS, st.data())
def test_gold_in_any_equivalent_form_verifies(value: Fraction, data: st.DataObject) -> None:
    gold = data.draw(st.sampled_from(spellings(value)))
    said = data.draw(st.sampled_from(spellings(value)))
    assert scored(gold, f"So we get \\boxed{{{said}}}.").passed


@given(RATIONALS, st.integers(-3, 3), st.integers(0, 8), st.data())
def test_perturbed_gold_never_verifies(
    value: Fraction, step: int, places: int, data: st.DataObject
) -> None:
    other = value + Fraction(step or 1, 10**places)
    gold = data.draw(st.sampled_from(spellings(value)))
    said = data.draw(st.sampled_from(spellings(other)))
    assert not scored(gold, f"So we get \\boxed{{{said}}}.").passed


@given(st.text(max_size=200))
def test_any_text_gets_a_verdict(text: str) -> None:
    for wrapped in (text, f"\\boxed{{{text}}}", f"The answer is {text}"):
        assert isinstance(scored("123456789", wrapped), Score)


@given(st.floats(0.001, 0.9), RATIONALS)
def test_relative_tolerance_is_exact_on_the_decimal_shown(rel: float, gold: Fraction) -> None:
    tolerance = Tolerance(rel=rel)
    edge = gold * (1 + Fraction(str(rel)))
    assert tolerance.covers(edge, gold)
    assert gold == 0 or not tolerance.covers(edge + gold * Fraction(1, 10**12), gold)
