"""Templates render data and nothing else; they cannot run code, hang or fill the memory."""

from __future__ import annotations

import time
from typing import Any

import pytest

from labelkit.templates import Template, TemplateFault

NAMES = ("prompt", "id", "metadata", "row")
VALUES: dict[str, Any] = {
    "prompt": "What is 1+1?",
    "id": "t1",
    "metadata": {"items": ["a", "b"], "n": 3, "hint": None, "html": "<b> & 'c'"},
    "row": {},
}
TOWER = "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60
OTHER_TOWER = TOWER.replace("set a =", "set b =").replace("[a, a]", "[b, b]")


def render(source: str) -> str:
    return Template(source, NAMES).render(VALUES)


def fault(source: str) -> TemplateFault:
    with pytest.raises(TemplateFault) as caught:
        render(source)
    return caught.value


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ prompt }}", "What is 1+1?"),
        ("Solve:\n{{ prompt }}\n", "Solve:\nWhat is 1+1?\n"),
        (r"End with \boxed{}. {{ prompt }}", r"End with \boxed{}. What is 1+1?"),
        ("{{ metadata.html }}", "<b> & 'c'"),
        ("{{ metadata.items }}", "['a', 'b']"),
        (
            "{% for c in metadata['items'] %}{{ 'ABCD'[loop.index0] }}. {{ c }}\n{% endfor %}",
            "A. a\nB. b\n",
        ),
        ("{% set n = metadata.n + 1 %}{{ n * 2 }}", "8"),
        ("{{ id ~ '-' ~ metadata.n }}", "t1-3"),
        ("{{ metadata.hint or 'none' }}", "none"),
        ("{{ metadata.topic | default('maths') }}", "maths"),
        ("{% if metadata.topic is defined %}x{% else %}y{% endif %}", "y"),
        ("{{ prompt | upper | replace('1', 'ONE') }}", "WHAT IS ONE+ONE?"),
        ("{{ metadata['items'] | join(', ') }}", "a, b"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ prompt.split()[0] }}", "What"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    ],
)
def test_templates_render_the_data_as_it_is(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "problem", "fix"),
    [
        ("{{ promt }}", "uses the undefined name `promt`", "did you mean `prompt`?"),
        ("{{ question }}", "uses the undefined name `question`", "known: id, metadata, prompt"),
        ("{{ gold }}", "uses the undefined name `gold`", "the gold is never shown to the model"),
        ("{{ lipsum() }}", "uses the undefined name `lipsum`", "known"),
        ("{{ namespace(a=1) }}", "uses the undefined name `namespace`", "known"),
        ("{{ prompt", "is not a template: unexpected end of template", "write literal"),
        ("a\n{% if %}", "is not a template: Expected an expression", "write literal"),
        ("{{ prompt | center(9) }}", "is not a template: No filter named 'center'", "known: abs"),
        ("{{ prompt | attr('x') }}", "is not a template: No filter named 'attr'", "known: abs"),
        ("{% include 'x' %}", "uses include", None),
        ("{% import 'x' as y %}", "uses import", None),
        ("{% extends 'x' %}", "uses extends", None),
        ("{% macro a() %}{% endmacro %}", "uses macros", None),
        ("{% set a %}x{% endset %}", "uses set blocks", None),
        ("{% autoescape true %}x{% endautoescape %}", "uses autoescape", None),
        ("{% for a in [] recursive %}{% endfor %}", "uses a recursive loop", None),
        ("{{ 2 ** 9 }}", "uses **", None),
        ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "is nested too deeply", None),
    ],
)
def test_a_template_that_cannot_work_is_refused_before_any_task(
    source: str, problem: str, fix: str | None
) -> None:
    with pytest.raises(TemplateFault) as caught:
        Template(source, NAMES)
    assert str(caught.value).startswith(problem)
    assert (caught.value.fix or "").startswith(fix or "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ metadata.topic }}", "has no attribute 'topic'"),
        ("{{ metadata.hint }}", "a value is null; write {{ … or '' }}"),
        ("{{ 'x' ~ metadata.hint }}", "a value is null"),
        ("{{ [metadata.hint] | join }}", "a value is null"),
        ("{{ prompt.upper }}", "is no text"),
        ("{{ range }}", "is no text"),
        ("{{ prompt[99] }}", "has no element 99"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ prompt() }}", "not callable"),
        ("{{ prompt.__class__ }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ prompt['__class__'] }}", "unsafe"),
        ("{{ prompt.format(1) }}", "unsafe"),
        ("{{ prompt.encode() }}", "unsafe"),
        ("{{ metadata['items'].append(1) }}", "unsafe"),
        ("{{ loop.index }}", "`loop`"),
        ('{{ "\\ud800" }}', "half of a surrogate pair"),
    ],
)
def test_what_is_not_data_never_becomes_text(source: str, said: str) -> None:
    assert said in str(fault(source))


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10**9) | list }}",
        "{{ range(1000000000) | list }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{{ range(9999) | list }}{% endfor %}",
        "{% for i in range(9999) %}{% if range(9999) | list | sort %}{% endif %}{% endfor %}",
        "{% for i in range(9999) %}{% if range(9999) | map('abs') | sum %}{% endif %}{% endfor %}",
        "{% set a = range(9999) | string %}"
        "{% for i in range(9999) %}{% if a.split() %}{% endif %}{% endfor %}",
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a ~ a %}" * 60,
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a + a %}" * 60,
        "{% set a = 9999 %}" + "{% set a = a * a %}" * 60,
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a | replace('x', a) %}" * 20,
        "{% set a = 'xxxxxxxx' %}" + "{% set a = a | list | join(a) %}" * 20,
        TOWER + "{{ a }}",
        TOWER + "{{ a | upper }}",
        TOWER + "{{ a | tojson }}",
        TOWER + "{{ a | string }}",
        TOWER + OTHER_TOWER + "{{ a == b }}",
        TOWER + OTHER_TOWER + "{{ a is eq(b) }}",
        TOWER + OTHER_TOWER + "{{ a in [b] }}",
        TOWER + OTHER_TOWER + "{{ [a, b] | sort }}",
    ],
)
def test_templates_are_bounded_in_time_and_size(source: str) -> None:
    started = time.process_time()
    fault(source)
    assert time.process_time() - started < 10


def test_each_rendering_has_its_own_bounds() -> None:
    template = Template("{% for i in range(9000) %}.{% endfor %}", NAMES)
    assert [len(template.render(VALUES)) for _ in range(3)] == [9000] * 3
