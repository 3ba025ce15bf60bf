"""Bad specs, task files and command lines, as a user meets them: one clear message that names the
place and the fix, exit code 2, nothing written, nothing spent, and never a traceback.

What each parser refuses is tested beside it; here are the faults of whole plans, and one of each
kind of the others, through the command line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.refusals import BASE, ROWS, Cli, changed, one, sampler, tasks


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(tmp_path, capsys, monkeypatch)


TEXT = yaml.safe_dump(BASE, sort_keys=False)
DEEP = "[" * 500 + "]" * 500
SPECS: dict[str, tuple[dict[str, Any] | str, list[str]]] = {
    # The file as YAML
    "empty": ("", ["is not a mapping"]),
    "not YAML": ("name: [a\n", ["spec.yaml:"]),
    "tab": ("name: a\n\ttasks: 1\n", ["spec.yaml:2"]),
    "duplicate key": (TEXT + "k: 3\n", ["spec.yaml:", "k", "twice"]),
    "alias bomb": (
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + TEXT,
        ["spec.yaml:2", "alias"],
    ),
    "deep nesting": (TEXT + f"canaries: {{x: {DEEP}}}\n", ["spec.yaml:", "nested"]),
    "YAML tag": (TEXT.replace("bad", "!!python/name:os.system"), ["spec.yaml:1", "tag"]),
    "two documents": (TEXT + "---\n" + TEXT, ["spec.yaml:"]),
    "list": ("- name\n- tasks\n", ["is not a mapping"]),
    # The envelope
    "unknown key": (changed(scorrer="x"), ["scorrer: unknown key", "`scorer`"]),
    "no model": (changed(sampler={}), ["sampler: names no model", "recorded"]),
    "model and replies": (
        sampler(recorded={"file": "r.jsonl", "text": "t"}),
        ["both `model` and `recorded`"],
    ),
    "no scorer": (changed(scorer=None), ["`scorer` is missing", "numeric"]),
    "k of 0": (changed(k=0), ["spec.yaml:", "k: 0:", "greater than or equal to 1"]),
    "name that leaves runs/": (changed(name="../../etc"), ["name:", "'../../etc'"]),
    "absolute name": (changed(name="/etc/x"), ["name:", "'/etc/x'"]),
    "negative budget": (changed(budget=-1), ["budget: -1"]),
    # Slices
    "slice by a path that no task has": (
        one(metadata={"source": "x"}) | {"slice_by": "metadata.sourse"},
        ["slice_by: 'metadata.sourse': no task has this path", "`metadata.source`"],
    ),
    "slice by a bare name": (
        one(metadata={"a": {"level": 1}}) | {"slice_by": ["id", "level"]},
        ["slice_by[1]: 'level'", "`metadata.a.level`"],
    ),
    "slice by what nothing is like": (
        one(metadata={"source": "x"}) | {"slice_by": "zzz"},
        ["slice_by: 'zzz'", "known here: gold, id, metadata.source"],
    ),
    "slice by the same twice": (
        changed(slice_by=["gold", "gold"]),
        ["slice_by[1]: 'gold'", "twice"],
    ),
    # Gates
    "gate on an unknown key": (changed(gates=["pas_rate > 1"]), ["gates[0]", "`pass_rate`"]),
    "gate that is no comparison": (changed(gates=["pass_rate"]), ["gates[0]", "pass_rate"]),
    "gate with code": (
        changed(gates=["__import__('os').system('x') > 0"]),
        ["gates[0]"],
    ),
    "gate on a reason that there is not": (
        changed(gates=["failed.wrong_anwser == 0"]),
        ["gates[0]", "`failed.wrong_answer`"],
    ),
    "gate on a text": (changed(gates=["name > 3"]), ["gates[0]", "name"]),
    "gate on a task's unknown key": (
        changed(gates=["any_task.cost > 1"]),
        ["gates[0]", "cost"],
    ),
    # Sampler and prompt
    "unknown parameter": (sampler(temprature=1), ["sampler.temprature", "`temperature`"]),
    "wrong type": (sampler(temperature="hot"), ["sampler.temperature: 'hot'", "a number"]),
    "parameter out of range": (sampler(temperature=-1), ["sampler.temperature: -1"]),
    "number of samples": (sampler(n=4), ["sampler.n: unknown key"]),
    "inline API key": (
        sampler(api_key="sk-000000000000000000000000"),
        ["sampler.api_key", "environment"],
    ),
    "inline API key further in": (
        sampler(extra_body={"auth": {"api-key": "sk-0000000"}}),
        ["sampler.extra_body.auth.api-key", "environment"],
    ),
    "undefined name in a template": (sampler(template="{{ promt }}"), ["template", "promt"]),
    "template that is none": (sampler(template="{{ prompt"), ["sampler.template"]),
    "template that runs code": (
        sampler(template="{{ ''.__class__.__mro__[1].__subclasses__() }}"),
        ["sampler.template"],
    ),
    "template that reads a file": (
        sampler(template="{% include '/etc/passwd' %}"),
        ["sampler.template"],
    ),
    "template and messages": (
        sampler(template="{{ prompt }}", messages=[{"role": "user", "content": "x"}]),
        ["sampler", "messages"],
    ),
    "bad response schema": (sampler(response={"x": "integerr"}), ["response", "integerr"]),
    "bad model path": (sampler(model="local/nowhere.gguf"), ["sampler.model", "nowhere.gguf"]),
    "api_base that is no URL": (
        sampler(api_base="localhost:8000"),
        ["spec.yaml:", "sampler.api_base: 'localhost:8000'"],
    ),
    "no api_base": (sampler(api_base=None), ["sampler.api_base: direct/fake needs", "http://"]),
    "no replies file": (
        changed(sampler={"recorded": {"file": "gone.jsonl", "text": "t", "id": "id"}}),
        ["gone.jsonl"],
    ),
    # Scorer
    "unknown scorer": (changed(scorer="numerc"), ["scorer", "`numeric`"]),
    "unknown argument": (
        changed(scorer={"numeric": {"tolerence": 1}}),
        ["scorer.numeric.tolerence", "`tolerance`"],
    ),
    "two scorers in one": (changed(scorer={"numeric": {}, "exact": {}}), ["scorer"]),
    "bad pattern": (changed(scorer={"regex": "("}), ["scorer.regex", "RE2"]),
    "code without leave": (
        changed(scorer={"python": "s.py:f"}),
        ["scorer: python: `s.py:f`", "--allow-code"],
    ),
    "code without a function": (
        changed(scorer={"python": "s.py"}),
        ["scorer.python: 's.py'", "write it as `reward.py:compute_score`"],
    ),
    "verl without leave": (
        changed(scorer={"verl": "s.py:compute_score"}),
        ["scorer", "--allow-code"],
    ),
    "program without leave": (changed(scorer={"command": ["rm", "x"]}), ["--allow-code"]),
    # Golds
    "gold unfit for the scorer": (one(gold="three apples or four"), ["tasks[0].gold", "three"]),
    "no gold": (changed(tasks=[{"prompt": "p"}]), ["tasks[0].gold: is missing: a number"]),
    "gold with grouped digits": (one(gold="1_000"), ["tasks[0].gold: '1_000'", "write 1000"]),
    "gold of another type": (one(gold={"x": 1}), ["tasks[0].gold"]),
    # Inline tasks
    "task without prompt": (changed(tasks=[{"gold": 3}]), ["tasks[0]", "prompt"]),
    "task with an unknown key": (one(promt="x"), ["tasks[0].promt", "prompt"]),
    "same id twice": (
        changed(tasks=[BASE["tasks"][0], {**BASE["tasks"][0], "prompt": "q"}]),
        ["tasks[1].id", "'a'", "task 1"],
    ),
    "no tasks": (changed(tasks=[]), ["tasks:", "at least 1"]),
}
ROLLOUT_ALONE = {
    "parameter that the model lacks": (
        sampler(model="anthropic/claude-3-haiku-20240307", api_base=None, logprobs=True),
        ["sampler", "logprobs", "remove it", "ANTHROPIC_API_KEY"],
    ),
    "model without a provider": (
        sampler(model="mystery-9000", api_base=None),
        ["sampler", "mystery-9000", "provider/model"],
    ),
}
"""Faults that only the transport can know: `check` imports none."""

FILES: dict[str, tuple[str, list[str]]] = {
    "bad JSON": (ROWS + '{"prompt": \n', ["rows.jsonl:2"]),
    "no object": (ROWS + "[1, 2]\n", ["rows.jsonl:2"]),
    "duplicate id": (ROWS + ROWS, ["rows.jsonl:2: id: 'a'", "line 1"]),
    "duplicate key": ('{"prompt": "p", "prompt": "q", "gold": 1}\n', ["rows.jsonl:1", "prompt"]),
    "NaN": ('{"prompt": "p", "gold": NaN}\n', ["rows.jsonl:1", "NaN"]),
    "infinite": ('{"prompt": "p", "gold": 1e999}\n', ["rows.jsonl:1", "1e999"]),
    "deep": ('{"prompt": "p", "gold": ' + "[" * 2000 + "]" * 2000 + "}\n", ["rows.jsonl:1"]),
    "lone surrogate": ('{"prompt": "\\ud800", "gold": 3}\n', ["rows.jsonl:1", "surrogate"]),
    "empty file": ("", ["rows.jsonl", "has no tasks"]),
    "bad gold": (
        ROWS + '{"id": "b", "prompt": "p", "gold": "x"}\n',
        ["rows.jsonl:2: gold", "on_bad_gold"],
    ),
    "unknown column": (ROWS + '{"prompt": "p", "answer": 3}\n', ["rows.jsonl:2", "answer"]),
    "number for a prompt": ('{"prompt": 5, "gold": 3}\n', ["rows.jsonl:1: prompt"]),
    "empty prompt": ('{"prompt": "", "gold": 3}\n', ["rows.jsonl:1: prompt"]),
}


@pytest.mark.parametrize("verb", ["check", "rollout"])
@pytest.mark.parametrize("case", SPECS)
def test_a_bad_spec_is_one_clear_message(cli: Cli, verb: str, case: str) -> None:
    values, said = SPECS[case]
    spec = cli.spec(values)
    output = () if verb == "check" else ("-o", cli.folder / "run")
    message = cli.refused(verb, spec, *output)
    assert str(spec) in message
    for part in said:
        assert part in message


@pytest.mark.parametrize("case", ROLLOUT_ALONE)
def test_what_only_the_transport_knows_is_told_before_anything_is_spent(
    cli: Cli, case: str
) -> None:
    values, said = ROLLOUT_ALONE[case]
    message = cli.refused("rollout", cli.spec(values), "-o", cli.folder / "run")
    for part in said:
        assert part in message


@pytest.mark.parametrize("verb", ["check", "rollout"])
@pytest.mark.parametrize("case", FILES)
def test_a_bad_task_file_is_told_with_its_row(cli: Cli, verb: str, case: str) -> None:
    content, said = FILES[case]
    spec = cli.spec(tasks(), rows__jsonl=content)
    output = () if verb == "check" else ("-o", cli.folder / "run")
    message = cli.refused(verb, spec, *output)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"file": "gone.jsonl"}, ["gone.jsonl", "does not exist", "spec.yaml:3"]),
        ({"file": "rows.xlsx"}, ["rows.xlsx"]),
        ({"file": "."}, ["tasks.file"]),
        ({"fields": {"prompt": "question"}}, ["question", "rows.jsonl:1"]),
        ({"fields": {"prompt": "prompt", "gold": {"column": "gold", "regex": "("}}}, ["regex"]),
        ({"where": {"promt": "x"}}, ["tasks.where.promt", "`prompt`"]),
        ({"where": {"id": "zzz"}}, ["where"]),
        ({"shuffle": "yes"}, ["tasks.shuffle", "'yes'"]),
        ({"on_bad_gold": "ignore"}, ["tasks.on_bad_gold", "'ignore'"]),
        ({"filee": "x"}, ["tasks.filee", "`file`"]),
    ],
)
def test_a_bad_task_source_is_told(cli: Cli, settings: dict[str, Any], said: list[str]) -> None:
    spec = cli.spec(tasks(**settings), rows__jsonl=ROWS)
    message = cli.refused("rollout", spec, "-o", cli.folder / "run")
    for part in said:
        assert part in message


def test_all_faults_of_a_spec_stand_in_one_message(cli: Cli) -> None:
    values = changed(
        kk=3,
        gates=["pas_rate > 1", "n_tasks >"],
        sampler={"model": "direct/fake", "temprature": 1, "api_key": "sk-0000000"},
        scorer={"numeric": {"tolerence": 1}},
        tasks={"file": "gone.jsonl"},
        learning_zone={"contrst": True},
    )
    parts = ("kk", "pas_rate", "n_tasks >", "temprature", "sampler.api_key", "tolerence",
             "gone.jsonl", "contrst")  # fmt: skip
    spec = cli.spec(values)
    message = cli.refused("check", spec)
    for part in parts:
        assert part in message
    lines = [line for line in message.splitlines() if line.startswith("error: ")]
    assert len(lines) == len(parts)
    assert all(f"{spec}:" in line for line in lines)


@pytest.mark.parametrize("verb", ["check", "rollout"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": "a", "reply": "3"}\n{"id": "b", "replyy": "3"}\n', ["replies.jsonl:2", "`reply`"]),
        ('{"id": "a", "reply": "3"}\n{"reply": "3"}\n', ["replies.jsonl:2", "`id`"]),
        ('{"id": "a", "reply": 3}\n', ["replies.jsonl:1", "not a text"]),
        ("{\n", ["replies.jsonl:1"]),
    ],
)
def test_bad_replies_are_told_with_their_row(
    cli: Cli, verb: str, content: str, said: list[str]
) -> None:
    recorded = {"file": "replies.jsonl", "id": "id", "text": "reply"}
    spec = cli.spec(changed(sampler={"recorded": recorded}), replies__jsonl=content)
    output = () if verb == "check" else ("-o", cli.folder / "run")
    message = cli.refused(verb, spec, *output)
    for part in said:
        assert part in message


def test_a_template_that_fails_on_a_later_row_is_told_before_the_first_is_paid_for(
    cli: Cli,
) -> None:
    rows = "".join(
        json.dumps({"id": f"t{i}", "prompt": "p", "gold": 3, "metadata": {"a": 1} if i else {}})
        + "\n"
        for i in (1, 2, 0, 3)
    )
    values = {
        **tasks(),
        "sampler": {**BASE["sampler"], "template": "{{ metadata.a }} {{ prompt }}"},
    }
    message = cli.refused("rollout", cli.spec(values, rows__jsonl=rows), "-o", cli.folder / "run")
    assert "rows.jsonl:3: sampler.template: task 't0'" in message
    assert message.count("error: ") == 1


def test_every_bad_row_is_told_up_to_a_bound(cli: Cli) -> None:
    rows = "".join(json.dumps({"id": str(i), "prompt": "p", "gold": "x"}) + "\n" for i in range(70))
    message = cli.refused("check", cli.spec(tasks(), rows__jsonl=rows))
    assert all(f"rows.jsonl:{line}: gold" in message for line in range(1, 51))
    assert "20 more faults" in message


def test_faults_of_all_sections_and_tasks_are_told_together(cli: Cli) -> None:
    text = """nam: x
concurrency: -4
tasks:
  - {id: a, prompt: p, gold: banana}
  - {id: b, gold: 3}
sampler:
  modle: direct/x
  temperture: 1
scorer: numeric
learning_zone: {contrst: true}
"""
    message = cli.refused("check", cli.spec(text))
    for part in (
        "nam: unknown key (did you mean `name`?)",
        "`name` is missing",
        "concurrency: unknown key",
        "tasks[0].gold: ",
        "tasks[1]",
        "sampler.modle: unknown key (did you mean `model`?)",
        "sampler.temperture: unknown key (did you mean `temperature`?)",
        "learning_zone.contrst: unknown key",
    ):
        assert message.count(part) == 1, (part, message)
    assert "names no model" not in message


def test_faulty_tasks_hide_no_fault_of_sampler_and_scorer(cli: Cli) -> None:
    text = """name: x
tasks: {fiel: tasks.jsonl}
sampler: {model: direct/x, max_token: 5, response: {a: int}}
scorer: numerc
"""
    message = cli.refused("check", cli.spec(text))
    for part in ("tasks.fiel", "`file` is missing", "`max_tokens`", "`numeric`"):
        assert message.count(part) == 1, (part, message)


def test_what_is_looked_for_in_sound_tasks_is_told_together(cli: Cli) -> None:
    spec = cli.spec(changed(
        slice_by="metadata.x", canaries={"wrong": [{"task": "nobody", "reply": "x"}]},
        sampler={**BASE["sampler"], "template": "{{ prompt }} {{ row.colour }}"},
    ))  # fmt: skip
    message = cli.refused("rollout", spec, "--task", "nope")
    for part in ("slice_by", "--task nope", "colour", "nobody"):
        assert part in message, (part, message)
