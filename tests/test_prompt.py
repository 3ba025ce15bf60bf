"""From a task to its request."""

from __future__ import annotations

from typing import Any

import pytest

from labelkit.errors import SpecError
from labelkit.prompt import PARAMETERS, PromptSettings, Renderer, check
from labelkit.records import Request, Task
from labelkit.spec import SectionError

TASK = Task(id="t1", prompt="What is 1+1?", gold=2, metadata={"topic": "sums"}, line=4)
CHAT = Task(
    id="c1",
    prompt=(
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "1+1?"},
    ),
)


def settings(**options: Any) -> PromptSettings:
    return PromptSettings.model_validate({"model": "m", **options})


def render(task: Task = TASK, **options: Any) -> Request:
    return Renderer(settings(**options)).render(task)


def test_a_text_prompt_becomes_one_user_message() -> None:
    assert render() == Request(model="m", messages=({"role": "user", "content": "What is 1+1?"},))


def test_a_prompt_as_it_is_may_have_any_length() -> None:
    text = "x" * 3_000_000 + " \n"
    task = TASK.model_copy(update={"prompt": text})
    assert render(task).messages[0]["content"] == text
    assert render(task, api="completions").text == text


def test_system_is_sent_literally_in_front() -> None:
    request = render(system=r"End with \boxed{{x}}.")
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.messages[0]["content"] == r"End with \boxed{{x}}."


def test_a_template_sees_prompt_id_metadata_and_row() -> None:
    task = TASK.model_copy(update={"row": {"hint": "count"}})
    request = render(task, template="{{ id }}|{{ metadata.topic }}|{{ row.hint }}|{{ prompt }}")
    assert request.messages[0]["content"] == "t1|sums|count|What is 1+1?"


def test_message_templates_become_the_messages() -> None:
    request = render(
        messages=[
            {"role": "system", "template": "You know {{ metadata.topic }}."},
            {"role": "user", "template": "{{ prompt }}"},
            {"role": "assistant", "template": "Let me see."},
        ]
    )
    assert request.messages == (
        {"role": "system", "content": "You know sums."},
        {"role": "user", "content": "What is 1+1?"},
        {"role": "assistant", "content": "Let me see."},
    )


def test_completions_get_text_and_no_messages() -> None:
    request = render(api="completions", template="Q: {{ prompt }}\nA:")
    assert (request.api, request.text, request.messages) == (
        "completions",
        "Q: What is 1+1?\nA:",
        (),
    )


def test_chat_prompts_pass_unchanged_behind_the_system_message() -> None:
    assert render(CHAT).messages == CHAT.prompt
    assert render(CHAT, system="s").messages[0] == {"role": "system", "content": "s"}
    assert render(CHAT, system="s").messages[1:] == CHAT.prompt


def test_a_template_is_applied_to_the_last_user_message_of_a_chat_prompt() -> None:
    assert render(CHAT, template="Solve: {{ prompt }}").messages == (
        *CHAT.prompt[:2],
        {"role": "user", "content": "Solve: 1+1?"},
    )


def test_parameters_hold_only_what_was_set() -> None:
    options: dict[str, Any] = {
        "temperature": 0.0,
        "stop": ["\n"],
        "seed": 3,
        "logprobs": False,
        "extra_body": {"a": [None, 10**40]},
    }
    assert render(**options).parameters == options
    assert render(revision="r").revision == "r"
    assert "revision" not in PARAMETERS


def test_the_response_schema_and_tools_are_part_of_the_request() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    request = render(response={"final_answer": "int"}, tools=[tool])
    assert request.tools == (tool,)
    assert request.response_schema is not None
    assert request.response_schema["required"] == ["final_answer"]


@pytest.mark.parametrize("template", ["{{ gold }}", "{{ row.gold }}"])
def test_the_gold_is_never_in_a_prompt(template: str) -> None:
    task = TASK.model_copy(update={"row": {"prompt": "p", "gold": 2}})
    with pytest.raises((SpecError, SectionError)):
        render(task, template=template)


@pytest.mark.parametrize(
    ("options", "at", "said"),
    [
        ({"template": "{{ promt }}"}, ("template",), "uses the undefined name `promt`"),
        ({"template": "{{ prompt"}, ("template",), "is not a template"),
        ({"template": "x\ud800"}, ("template",), "half of a surrogate pair"),
        ({"system": "x\ud800"}, ("system",), "half of a surrogate pair"),
        (
            {"messages": [{"role": "user", "template": "{{ x }}"}]},
            ("messages", 0, "template"),
            "uses the undefined name `x`",
        ),
        ({"messages": []}, ("messages",), "is empty"),
        (
            {"messages": [{"role": "user", "template": "a"}], "template": "b"},
            ("messages",),
            "stands beside `template`",
        ),
        (
            {"messages": [{"role": "system", "template": "a"}], "system": "b"},
            ("system",),
            "stands beside a system message",
        ),
        ({"api": "completions", "system": "s"}, ("system",), "is not for api: completions"),
        (
            {"api": "completions", "messages": [{"role": "user", "template": "a"}]},
            ("messages",),
            "is not for api: completions",
        ),
        ({"response": {"a": "number"}}, ("response", "a"), "'number' is no type"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused_before_any_task(
    options: dict[str, Any], at: tuple[str | int, ...], said: str
) -> None:
    [problem] = check(settings(**options))
    assert problem.at == at
    assert said in problem.problem
    with pytest.raises(SectionError):
        Renderer(settings(**options))


def test_all_problems_come_at_once() -> None:
    found = check(settings(template="{{ x }}", response={"a": "y"}, api="completions", system="s"))
    assert {problem.at for problem in found} == {("system",), ("template",), ("response", "a")}


SYSTEM = Task(
    id="s1", prompt=({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
)
PARTS = Task(id="p1", prompt=({"role": "user", "content": [{"type": "text", "text": "b"}]},))
ONE_MESSAGE = [{"role": "user", "template": "{{ prompt }}"}]


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        (TASK, {"template": "{{ metadata.lang }}"}, "sampler.template: task 't1': cannot be ren"),
        (TASK, {"template": "{{ row.x }}"}, "sampler.template: task 't1': cannot be rendered"),
        (TASK, {"template": "{% if false %}x{% endif %}"}, "sampler.template: task 't1': gives an"),
        (CHAT, {"api": "completions"}, "sampler.api: task 'c1': is completions, but"),
        (CHAT, {"messages": ONE_MESSAGE}, "sampler.messages: task 'c1': would replace the chat"),
        (SYSTEM, {"system": "s"}, "sampler.system: task 's1': stands beside a system message"),
        (PARTS, {"template": "x {{ prompt }}"}, "sampler.template: task 'p1': has no user message"),
    ],
)
def test_a_task_that_does_not_fit_is_named(task: Task, options: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        render(task, **options)
    assert said in str(caught.value)
    assert caught.value.faults[0].line == task.line


def test_a_renderer_of_another_section_says_so() -> None:
    renderer = Renderer(settings(template="{{ metadata.x }}"), "best_of_n.judge")
    with pytest.raises(SpecError, match=r"^4: best_of_n\.judge\.template: task 't1'"):
        renderer.render(TASK)
