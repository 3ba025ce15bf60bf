"""`labelkit check`: every fault of a spec and its tasks at once, before anything is spent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelkit.cli import app
from labelkit.cli.recipes import AllowCode, K, Limit, Model, NoSandbox, Set, Spec, TaskIds

if TYPE_CHECKING:
    from labelkit.plan import Plan
    from labelkit.prepare import Options, Prepared
    from labelkit.samplers import SamplerSettings
    from labelkit.spec import Document


@app.command()
def check(
    spec: Spec,
    k: K = None,
    model: Model = None,
    limit: Limit = None,
    task: TaskIds = None,
    set_: Set = None,
    allow_code: AllowCode = False,
    unsafe_no_sandbox: NoSandbox = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Make one real call; show the reply and its verdict.")
    ] = False,
) -> None:
    """Every fault of a spec and its tasks at once; spends nothing."""
    from labelkit.plan import Permissions
    from labelkit.prepare import Options
    from labelkit.spec import load

    flags: dict[str, Any] = {"k": k, "sampler.model": model}
    document = load(spec, set_ or [], {at: v for at, v in flags.items() if v is not None})
    options = Options(
        limit=limit,
        task_ids=task or [],
        permissions=Permissions(allow_code, unsafe_no_sandbox),
    )
    commands = _commands(document)
    prepared = _prepare_all(document, commands, options)
    _print(prepared, commands)
    if probe:
        sys.stdout.flush()
        _probe(document, commands[0], options)


def _commands(document: Document) -> list[str]:
    """rollout, which every spec with a scorer can run, and those that it has a section for."""
    from labelkit.recipes import REGISTRY

    with_section = [name for name in REGISTRY if document.values.get(name.replace("-", "_"))]
    judged = document.values.get("scorer") is not None or not with_section
    return list(dict.fromkeys([*(["rollout"] if judged else []), *with_section]))


def _prepare_all(document: Document, commands: list[str], options: Options) -> list[Prepared]:
    """Prepare the spec for each command. Raises SpecError with the faults of all of them."""
    from labelkit.errors import Fault, SpecError
    from labelkit.prepare import prepare

    faults: dict[Fault, None] = {}
    prepared: list[Prepared] = []
    for command in commands:
        try:
            prepared.append(prepare(document, command, options))
        except SpecError as error:
            faults.update(dict.fromkeys(error.faults))
    if faults:
        raise SpecError(list(faults))
    _check_sampler(prepared[0])
    return prepared


def _check_sampler(prepared: Prepared) -> None:
    """Ask the sampler about the first request, where that takes no provider's library. Recorded
    replies are read whole. Raises SpecError with all that it says."""
    import asyncio

    from labelkit.errors import SpecError
    from labelkit.plan import open_sampler
    from labelkit.prepare import sampler_fault

    plan = prepared.plan
    task = next(prepared.tasks(), None)
    if task is None or plan.sampler.transport not in ("recorded", "direct"):
        return
    sampler = open_sampler(plan.sampler, plan.folder)
    problems = sampler.check(plan.renderer.render(task))
    asyncio.run(sampler.close())
    if problems:
        raise SpecError([sampler_fault(plan.document, ("sampler",), each) for each in problems])


def _print(every: list[Prepared], commands: list[str]) -> None:
    from labelkit.report.text import number, plain

    plan, survey = every[0].plan, every[0].survey
    judges = {judge.model: judge for each in every for judge in each.plan.scorer_settings.judges}
    lines = [
        f"{plain(plan.document.shown)}: no fault found",
        f"tasks: {number(survey.n_tasks, 'task')} from {plain(plan.stream.shown)}",
        _source(plan.sampler, plan.folder),
        *(f"judge: {_model(judge)}" for judge in judges.values()),
        f"scorer: {plan.scorer_settings.KIND}",
        f"k: {plan.spec.k}",
        f"commands: {', '.join(commands)}",
        *_other_commands(plan, commands),
    ]
    if survey.n_bad_golds:
        lines.append(f"dropped: {number(survey.n_bad_golds, 'task')} whose gold cannot be used")
    if survey.n_duplicates:
        lines.append(f"dropped: {number(survey.n_duplicates, 'task')} with the prompt of another")
    elif survey.n_same_prompt:
        lines.append(f"duplicate prompts: {number(survey.n_same_prompt, 'task')}")
    if survey.n_conflicting:
        lines.append(f"conflicting golds: {number(survey.n_conflicting, 'task')}")
    unwise = dict.fromkeys(str(warning) for each in every for warning in each.plan.warnings)
    unwise |= dict.fromkeys(
        said for model in (plan.sampler, *judges.values()) for said in _lacking_keys(model)
    )
    lines += [f"warning: {plain(warning)}" for warning in (*survey.warnings, *unwise)]
    sys.stdout.write("\n".join(lines) + "\n")


def _source(sampler: SamplerSettings, folder: Path) -> str:
    """Where replies come from."""
    from labelkit.report.text import plain

    if sampler.recorded is not None:
        return f"replies: {plain(str(folder / sampler.recorded.file))}"
    return f"model: {_model(sampler)}"


def _model(sampler: SamplerSettings) -> str:
    """A model with its endpoints: a spec may send what it reads anywhere."""
    from labelkit.report.text import plain
    from labelkit.samplers.endpoints import shown_urls

    urls = ", ".join(shown_urls(sampler))
    return plain(f"{sampler.model} at {urls}" if urls else sampler.model)


def _lacking_keys(sampler: SamplerSettings) -> Iterator[str]:
    """The keys that a run would look for and not find. A server on plain http is taken for one that
    needs none. litellm, which takes seconds to import, is asked only where no endpoint is named."""
    from urllib.parse import urlsplit

    from labelkit.samplers.endpoints import KEY_VARIABLE, auth_header, endpoint_urls, shown_urls

    if sampler.transport == "litellm" and sampler.api_base is None:
        from labelkit.samplers.litellm import lacking_keys

        if names := lacking_keys(sampler.model):
            yield f"{names} is not set: a run of {sampler.model} needs it"
        return
    if any(name.lower() in ("authorization", "api-key", "x-api-key") for name in sampler.headers):
        return
    for url, shown in zip(endpoint_urls(sampler), shown_urls(sampler), strict=True):
        if url.lower().startswith("https://") and not auth_header(url):
            own = "OPENAI_API_KEY" if urlsplit(url).hostname == "api.openai.com" else KEY_VARIABLE
            yield f"{own} is not set: {shown} gets no key"


def _other_commands(plan: Plan, commands: list[str]) -> Iterator[str]:
    """What the commands would say that the spec has no section for."""
    from labelkit.plan import unfit
    from labelkit.recipes import REGISTRY
    from labelkit.report.text import plain

    able: list[str] = []
    unable: dict[str, list[str]] = {}
    for command in (each for each in REGISTRY if each not in commands):
        fault = unfit(plan, command)
        if fault is None:
            able.append(command)
        else:
            why = ": ".join(filter(None, (fault.field, fault.problem)))
            unable.setdefault(why, []).append(command)
    if able:
        yield f"also, by defaults: {', '.join(able)}"
    for why, names in unable.items():
        yield f"not {', '.join(names)}: {plain(why)}"


def _probe(document: Document, command: str, options: Options) -> None:
    """One attempt of the first task by the way every run takes, in a run directory that is thrown
    away; then its transcript."""
    import tempfile
    from dataclasses import replace

    from labelkit.prepare import prepare
    from labelkit.report.live import display
    from labelkit.report.run_view import RunView
    from labelkit.report.show import transcript
    from labelkit.run import execute

    one = replace(document, values={**document.values, "k": 1, "gates": [], "canaries": {}})
    with tempfile.TemporaryDirectory(prefix="labelkit-") as folder:
        probe = replace(options, limit=1, directory=Path(folder) / "probe")
        prepared = prepare(one, command, probe)
        with display(quiet=True) as progress:
            summary = execute(prepared, progress)
        for why in summary["incomplete"]:
            sys.stderr.write(f"{why}\n")
        task = next(prepared.tasks())
        with RunView(prepared.directory) as view:
            for line in transcript(view, task.id, 0):
                sys.stdout.write(line + "\n")
    raise SystemExit(summary["exit_code"])
