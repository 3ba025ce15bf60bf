"""From a document and the command line to a run that nothing but the world can stop.

Every fault of spec, gates and task files is found here, in one message, before a directory is made
or a call is paid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from pydantic import JsonValue

from labelkit import pilot
from labelkit.directory import read_lines
from labelkit.engine import Rules
from labelkit.errors import Fault, RunMismatchError, SpecError, UsageError
from labelkit.gates import Gate, check_key, parse_gate
from labelkit.plan import Permissions, Plan, bind
from labelkit.recipes.canaries import PREFIX, Canary, plant
from labelkit.records import StopReason, Task
from labelkit.rowfiles import MISSING
from labelkit.rows import slice_value
from labelkit.samplers import SamplerSettings
from labelkit.spec import Document, Path_, SectionError, nearest
from labelkit.tasks import MAX_FAULTS, Survey, survey

MAX_KNOWN_IDS = 10_000
"""Ids that a misspelt one is compared with."""
MAX_KNOWN_PATHS = 1_000
"""Paths into tasks that a misspelt one is compared with."""


@dataclass(frozen=True)
class Options:
    """What the command line says beyond the spec. `selection` flags change rows, others do not."""

    directory: Path | None = None
    sources: Sequence[Path] = ()
    top_up: bool = False
    retry_errors: bool = False
    fresh: bool = False
    repair: bool = False
    limit: int | None = None
    task_ids: Sequence[str] = ()
    shard: tuple[int, int] | None = None
    gates: Sequence[str] = ()
    never_buy: bool = False
    batch: bool = False
    pilot: int | None = None
    stop_if: Sequence[str] = ()
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True)
class Prepared:
    """A plan whose tasks were surveyed: nothing in it can be wrong any more but the world."""

    plan: Plan
    options: Options
    gates: tuple[Gate, ...]
    survey: Survey
    directory: Path
    canaries: tuple[Canary, ...] = ()
    stop_if: tuple[Gate, ...] = ()

    @property
    def rules(self) -> Rules:
        """How the run's replies become attempts."""
        spec = self.plan.spec
        return Rules(
            self.plan.scorer,
            truncated_fails=spec.on_truncated == "fail",
            invalid_fails=spec.on_invalid_output == "fail",
            draws_nothing=self.options.never_buy,
        )

    def tasks(self) -> Iterator[Task]:
        """The run's tasks in order, after shard, --task and --limit."""
        wanted = set(self.options.task_ids)
        tasks: Iterator[Task] = iter(self.plan.stream)
        if self.options.shard is not None:
            part, parts = self.options.shard
            tasks = itertools.islice(tasks, part - 1, None, parts)
        if wanted:
            tasks = (task for task in tasks if task.id in wanted)
        return itertools.islice(tasks, self.options.limit)

    @property
    def n_tasks(self) -> int:
        """How many `tasks` gives."""
        options, n = self.options, self.survey.n_tasks
        if options.task_ids:
            return sum(1 for _ in self.tasks())
        if options.shard is not None:
            part, parts = options.shard
            n = len(range(part - 1, n, parts))
        return n if options.limit is None else min(n, options.limit)

    @property
    def whole(self) -> bool:
        """No flag leaves tasks out, so what the source dropped belongs to this run's account."""
        return self.options.limit is None and not self.options.task_ids and not self.options.shard


def prepare(document: Document, command: str, options: Options) -> Prepared:
    """Bind a document and survey its tasks. Raises SpecError with every fault there is."""
    faults: list[Fault] = []
    gates: list[Gate] = []
    section = document.values.get("gates")
    written = [e for e in section if isinstance(e, str)] if isinstance(section, list) else []
    for number, expression in enumerate([*written, *options.gates]):
        at = ("gates", number) if number < len(written) else ()
        gates += _gate(expression, SUMMARY_KEYS, document, at, faults)
    stop_if: list[Gate] = []
    for expression in options.stop_if:
        stop_if += _gate(expression, pilot.KEYS, document, (), faults)
    if stop_if and options.pilot is None:
        fix = "add --pilot 64: it decides after so many tasks"
        faults.append(Fault("has no pilot to look at", field="--stop-if", fix=fix))
    try:
        plan = bind(document, command, options.permissions)
    except SpecError as error:
        raise SpecError([*error.faults, *faults]) from None
    try:
        found = survey(plan.stream, plan.scorer.check_gold)
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from None
    warnings = [*plan.warnings]
    canaries: list[Canary] = []
    looks: list[Callable[[], None]] = [
        lambda: _render_all(plan),
        lambda: _check_task_ids(plan, options),
        lambda: warnings.extend(_slices(plan)),
        lambda: canaries.extend(_canaries(plan)),
    ]
    for look in looks:
        try:
            look()
        except SpecError as error:
            faults += error.faults
    if faults:
        raise SpecError(faults)
    plan = replace(plan, warnings=tuple(warnings))
    directory = options.directory or _directory(plan, options)
    return Prepared(plan, options, tuple(gates), found, directory, tuple(canaries), tuple(stop_if))


def sampler_fault(document: Document, section: Path_, problem: str) -> Fault:
    """What a sampler says of its request, at the key of its section that it begins with."""
    key, separator, said = problem.partition(": ")
    at = tuple(key.split("."))
    if separator and at[0] in SamplerSettings.model_fields:
        return document.fault((*section, *at), said)
    return document.fault(section, problem)


def refuse_fewer(prepared: Prepared) -> None:
    """Flags that leave out tasks or samples take no rows from a run that holds them; what a changed
    spec leaves out is its own choice. Raises RunMismatchError."""
    directory, options, k = prepared.directory, prepared.options, prepared.plan.spec.k
    k_is_flag = "k" in prepared.plan.document.overrides
    if prepared.whole and not k_is_flag:
        return
    if not all((directory / name).exists() for name in ("summary.json", "tasks.jsonl")):
        return
    n_tasks = n_left_out = most = 0
    chosen = prepared.tasks()
    ids: set[str] | None = None  # of the chosen, needed only where the order is another
    for line in read_lines(directory / "tasks.jsonl"):
        if not line["outcomes"]:
            continue
        n_tasks += 1
        most = max(most, *(each["sample_index"] + 1 for each in line["outcomes"]))
        if any(task.id == line["id"] for task in chosen):
            continue
        ids = {task.id for task in prepared.tasks()} if ids is None else ids
        n_left_out += line["id"] not in ids
    if n_left_out and not prepared.whole:
        flags = [f"--task {task_id}" for task_id in options.task_ids]
        flags += [f"--shard {'/'.join(map(str, options.shard))}"] if options.shard else []
        flags += [f"--limit {options.limit}"] if options.limit is not None else []
        said = (
            f"attempts of {n_tasks:,} tasks, {n_left_out:,} of which {' '.join(flags)} leaves out"
        )
    elif k_is_flag and most > k:
        said = f"{most:,} attempts a task, {most - k:,} of which k = {k} leaves out"
    else:
        return
    raise RunMismatchError(
        f"{directory}: holds {said}",
        hint="-o DIR and --from this run make another of fewer, without a draw; --fresh sets this "
        "one aside",
    )


def _gate(
    expression: str, keys: Sequence[str], document: Document, at: Path_, faults: list[Fault]
) -> Iterator[Gate]:
    """The gate that an expression is; what is wrong with it goes to `faults`."""
    try:
        gate = parse_gate(expression)
    except UsageError as error:
        faults.append(document.fault(at, str(error), error.hint))
        return
    per_task = TASK_KEYS if keys is SUMMARY_KEYS else ()
    wrong = check_key(gate, per_task if gate.per_task else keys)
    if wrong is not None:
        faults.append(document.fault(at, wrong.problem, wrong.fix))
    yield gate


RATES = ("n_tasks", "n_attempts", "n_scored", "n_unscored", "n_passed", "pass_rate",
         "pass_rate_with_unscored", "mean_value")  # fmt: skip
FAILED = ("truncated", "invalid_output", "no_answer")
SCORED = ("no_answer", "completed")
SUMMARY_KEYS = (
    *RATES,
    "k",
    *(f"unscored.{reason}" for reason in get_args(StopReason) if reason not in SCORED),
    *(f"failed.{reason}" for reason in (*FAILED, "wrong_answer")),
    "pass_rate_interval.*",
    "pass_at_k.*",
    "kept",
    "dropped.*",
    *(f"tasks.{name}" for name in ("in", "kept", "dropped", "undecided", "not_run")),
    *(f"draws.{name}" for name in ("planned", "scored", "unscored", "not_needed", "not_run")),
    *(f"rows.{name}" for name in ("candidates", "kept", "dropped")),
    *(f"stages.*.{name}" for name in ("calls", "input_tokens", "output_tokens", "cost_usd")),
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "duration_s",
    *(f"slices.*.{name}" for name in RATES),
    "detail.*",
    "detail.*.*",
)
TASK_KEYS = ("n_passed", "n_scored", "n_unscored", "n_not_run", "pass_rate", "mean_value")
"""The numbers that a gate may name; `*` stands for any one part."""


def _render_all(plan: Plan) -> None:
    """Render every task where one may fail: a template that lacks a column in row 900 must be told
    before the first row is paid for. Raises SpecError with the first faults."""
    if plan.renderer.never_fails:
        return
    faults: list[Fault] = []
    for task in plan.stream:
        try:
            plan.renderer.render(task)
        except SpecError as error:
            faults += [_placed(fault, plan) for fault in error.faults]
            if len(faults) >= MAX_FAULTS:
                break
    if faults:
        raise SpecError(faults)


def _placed(fault: Fault, plan: Plan) -> Fault:
    """A fault of a task with its place: its file and row, or the spec's line for an inline task."""
    if plan.stream.shown != plan.document.shown or fault.line is None:
        return replace(fault, file=plan.stream.shown)
    line = plan.document.line_of(("tasks", fault.line - 1))
    return replace(fault, file=plan.document.shown, line=line)


def _check_task_ids(plan: Plan, options: Options) -> None:
    """Raises SpecError for ids that no task has: half a selection is not what was asked for."""
    unknown = dict.fromkeys(options.task_ids)
    if not unknown:
        return
    ids: list[str] = []
    for task in plan.stream:
        unknown.pop(task.id, None)
        if len(ids) < MAX_KNOWN_IDS:
            ids.append(task.id)
    faults: list[Fault] = []
    for task_id in unknown:
        guess = nearest(task_id, ids)
        fix = f"did you mean {guess}?" if guess else f"the first is {ids[0]}"
        faults.append(
            Fault(
                f"no task has this id in {plan.stream.shown}", None, None, f"--task {task_id}", fix
            )
        )
    if faults:
        raise SpecError(faults)


def _slices(plan: Plan) -> list[Fault]:
    """What is to be said of `slice_by`: how many tasks lack a path and stand in its slice `null`.

    Raises SpecError for a path that no task has, which is misspelt.
    """
    written = plan.spec.slice_by
    places: list[Path_] = [("slice_by", n) for n in range(len(written))]
    paths = dict(zip(places, written, strict=True))
    if isinstance(written, str):
        paths = {("slice_by",): written}
    if not paths:
        return []
    n_lacking = dict.fromkeys(paths, 0)
    known: set[str] = set()
    n_tasks = 0
    for task in plan.stream:
        n_tasks += 1
        for at, path in paths.items():
            n_lacking[at] += slice_value(task, path) is MISSING
        if len(known) < MAX_KNOWN_PATHS:
            known |= {"id", *_paths(task.metadata, "metadata"), *_paths(task.gold, "gold")}
    faults: list[Fault] = []
    said: list[Fault] = []
    seen: set[str] = set()
    for at, path in paths.items():
        if n_lacking[at] == n_tasks:
            fix = _nearest_path(path, sorted(known))
            faults.append(plan.document.fault(at, f"{path!r}: no task has this path", fix))
        elif path in seen:
            faults.append(plan.document.fault(at, f"{path!r} is there twice", "remove one"))
        elif n_lacking[at]:
            lack = f"{path!r}: {n_lacking[at]:,} of {n_tasks:,} tasks have no such path"
            said.append(plan.document.fault(at, lack, "they are the slice `null`"))
        seen.add(path)
    if faults:
        raise SpecError(faults)
    return said


def _paths(value: JsonValue, at: str) -> Iterator[str]:
    """The dotted paths of all that is no object in a value; none of a gold that is not there."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, f"{at}.{name}")
    elif value is not None:
        yield at


def _nearest_path(path: str, known: Sequence[str]) -> str:
    """The fix for a misspelt path: the known one that ends alike, or is spelt most alike."""
    end = path.rpartition(".")[2]
    ending = (each for each in known if each.rpartition(".")[2] == end)
    guess = next(ending, None) or nearest(path, known)
    return f"did you mean `{guess}`?" if guess else f"known here: {', '.join(known[:20])}"


def _canaries(plan: Plan) -> list[Canary]:
    """Plant the spec's canaries. Raises SpecError where one names no task or fits none."""
    settings, document = plan.canaries, plan.document
    named, anchors = settings.task_ids, plan.anchors
    if anchors is not None:
        survey(anchors, plan.scorer.check_gold)
    elif not named:
        return []
    tasks: dict[str, Task] = {}
    for task in plan.stream:
        if task.id.startswith(PREFIX):
            said = f"{task.id!r} starts with {PREFIX}, which only canaries may"
            raise SpecError([document.fault(("tasks",), said, "give the task another id")])
        if task.id in named:
            tasks[task.id] = task
    faults = [
        document.fault(("canaries", *at), f"{name!r} is no task of this spec", "name a task's id")
        for name, at in named.items()
        if name not in tasks
    ]
    if faults:
        raise SpecError(faults)
    try:
        return plant(settings, anchors or (), tasks, plan.recipe())
    except SectionError as error:
        faults = [document.fault(("canaries", *at), said, fix) for at, said, fix in error.problems]
        raise SpecError(faults) from None


def _directory(plan: Plan, options: Options) -> Path:
    model = "".join(c if c.isalnum() or c in "._-" else "-" for c in plan.sampler.model)
    part = f"-shard-{options.shard[0]}-of-{options.shard[1]}" if options.shard else ""
    return Path("runs") / plan.spec.name / model.strip(".") / f"{plan.command}{part}"
