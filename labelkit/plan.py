"""Binds a spec to its tasks, request, scorer, recipe and gates; every fault at once.

A plan spends nothing and starts nothing: samplers are opened by the run that needs them, so that
`show` never imports a provider library, and `check` only to ask which keys a model needs. All that
can be wrong with a spec is found here or in the survey of its tasks, before the first call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from labelkit import recipes, samplers
from labelkit.codec import canonical
from labelkit.errors import Fault, SpecError, UsageError
from labelkit.fingerprint import digest
from labelkit.prompt import PromptSettings, Renderer
from labelkit.recipes.canaries import CanarySettings
from labelkit.rowfiles import RowFile
from labelkit.samplers import Recorded, SamplerSettings
from labelkit.samplers.absent import AbsentSampler
from labelkit.scorers import Binding, ScorerSettings
from labelkit.scorers.aside import bound
from labelkit.scorers.judge import judge_at
from labelkit.scorers.parse import parse_scorer
from labelkit.seams import Recipe, Sampler, Scorer
from labelkit.spec import (
    Document,
    GoldFrom,
    Path_,
    Problem,
    SectionError,
    Spec,
    TaskFile,
    faults_of,
    nearest,
    parse_spec,
)
from labelkit.tasks import TaskStream, faults_in

_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|authorization|password|secret|(access|auth|bearer)[_-]?token)$", re.I
)


@dataclass(frozen=True)
class Permissions:
    """What the user allowed on the command line."""

    allow_code: bool = False
    unsafe_no_sandbox: bool = False


@dataclass(frozen=True)
class Plan:
    """A spec with everything bound but the samplers."""

    document: Document
    spec: Spec
    command: str
    sampler: SamplerSettings
    renderer: Renderer
    stream: TaskStream
    canaries: CanarySettings
    anchors: TaskStream | None
    scorer_settings: ScorerSettings
    scorer: Scorer
    recipe: Callable[[], Recipe]
    warnings: tuple[Fault, ...] = ()

    @property
    def folder(self) -> Path:
        return self.document.path.parent

    @property
    def reply_identity(self) -> dict[str, JsonValue]:
        """All that shapes a reply: the prompt half of the sampler section, or where replies are."""
        shaping: dict[str, JsonValue] = self.sampler.model_dump(
            mode="json", include=set(PromptSettings.model_fields) | {"recorded"}
        )
        return shaping

    @property
    def replies_digest(self) -> str | None:
        """sha256 hex of the file of recorded replies, None where a model is asked."""
        recorded = self.sampler.recorded
        if recorded is None:
            return None
        with open(self.folder / recorded.file, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def score_identity(self) -> dict[str, JsonValue]:
        """All that shapes a score."""
        return {
            "scorer": self.scorer.fingerprint,
            "on_truncated": self.spec.on_truncated,
            "on_invalid_output": self.spec.on_invalid_output,
        }

    @property
    def policy_fingerprint(self) -> str:
        """sha256 over model, revision, api and every parameter that shapes a reply."""
        prompt_only = ("system", "template", "messages", "response", "tools")
        shaping = self.reply_identity
        return digest({name: shaping[name] for name in shaping if name not in prompt_only})

    def env_parts(self, tasks_digest: str) -> dict[str, JsonValue]:
        """The parts of the env fingerprint by name, so that `diff` can say which one differs."""
        shaping = self.reply_identity
        return {
            "tasks": tasks_digest,
            "prompt": digest([shaping["system"], shaping["template"], shaping["messages"]]),
            "response": digest(shaping["response"]),
            "tools": digest(shaping["tools"]),
            "scorer": digest(self.score_identity),
        }

    @property
    def sampler_settings(self) -> dict[str, SamplerSettings]:
        """The settings behind `open_samplers`, by role."""
        judges = self.scorer_settings.judges
        return {"policy": self.sampler, **({"judge": judges[0]} if judges else {})}

    def sampler_at(self, role: str) -> Path_:
        """Where the section of a role stands in the spec."""
        return ("sampler",) if role == "policy" else judge_at(self.document.values, self.command)

    def open_samplers(self, *, may_buy: bool = True) -> dict[str, Sampler]:
        """The samplers by role; imports what they need. Raises UsageError for what is missing.

        Without `may_buy` the policy is not opened: what was not drawn is `not_drawn`.
        """
        judges = self.scorer_settings.judges
        policy = open_sampler(self.sampler, self.folder) if may_buy else AbsentSampler()
        opened: dict[str, Sampler] = {"policy": policy}
        for judge in judges:
            opened["judge"] = open_sampler(judge, self.folder)
        return opened


def open_sampler(settings: SamplerSettings, folder: Path) -> Sampler:
    """Make the sampler that carries these settings."""
    module, _, name = samplers.REGISTRY[settings.transport].partition(":")
    sampler: Sampler = getattr(import_module(module), name)(settings, folder)
    return sampler


def bind(document: Document, command: str, permissions: Permissions) -> Plan:
    """Bind a document to a command. Raises SpecError with every fault that a spec can have."""
    faults: list[Fault] = list(_inline_secrets(document))
    secret = {fault.field for fault in faults}
    spec, faulty = _envelope(document, faults)
    sampler = None if "sampler" in faulty else _sampler_settings(document, spec, faults)
    renderer = _renderer(document, spec, sampler, faults) if sampler else None
    recipe_class, recipe_settings, settings, warnings = _fitted(
        document, spec, sampler, command, faults
    )
    stream = None if "tasks" in faulty else _stream(document, spec.tasks, ("tasks",), faults)
    canaries, anchors = _canaries(document, spec, faults)
    scorer = None
    # Without a sampler a scorer can be bound only where it would see nothing of it.
    if settings is not None and (renderer or not {"response", "tools"} & spec.sampler.keys()):
        binding = Binding(
            folder=document.path.parent,
            allow_code=permissions.allow_code,
            unsafe_no_sandbox=permissions.unsafe_no_sandbox,
            response_schema=renderer.response_schema if renderer else None,
            tools=tuple(sampler.tools) if sampler else (),
        )
        at = "scorer" if spec.scorer is not None else command.replace("-", "_")
        scorer = _scorer(document, (at,), settings, binding, faults)
    if faults or not (sampler and renderer and settings and scorer) or stream is None:
        if stream is not None:
            faults += faults_in(stream, scorer.check_gold if scorer else None)
        # A key that holds a secret is mostly an unknown one too; once is enough.
        first = len(secret)
        raise SpecError([*faults[:first], *(f for f in faults[first:] if f.field not in secret)])
    envelope = recipes.Envelope(spec, sampler, settings)
    context = recipes.Context(envelope, renderer.render, scorer)
    return Plan(
        document=document,
        spec=spec,
        command=command,
        sampler=sampler,
        renderer=renderer,
        stream=stream,
        canaries=canaries,
        anchors=anchors,
        scorer_settings=settings,
        scorer=scorer,
        recipe=lambda: recipe_class(recipe_settings, context),
        warnings=tuple(document.fault(*warning) for warning in warnings),
    )


def unfit(plan: Plan, command: str) -> Fault | None:
    """Why another command cannot run a bound spec, None where it can."""
    faults: list[Fault] = []
    _fitted(plan.document, plan.spec, plan.sampler, command, faults)
    return faults[0] if faults else None


def _fitted(
    document: Document,
    spec: Spec,
    sampler: SamplerSettings | None,
    command: str,
    faults: list[Fault],
) -> tuple[Any, Any, ScorerSettings | None, list[Problem]]:
    """The command's recipe, its settings, the scorer's, and what is unwise about them together."""
    recipe_class, settings = _recipe(document, spec, command, faults)
    scorer = _scorer_settings(document, spec, recipe_class, settings, faults)
    if sampler is None or settings is None or scorer is None:
        return recipe_class, settings, scorer, []
    found: recipes.Check = recipe_class.check(settings, recipes.Envelope(spec, sampler, scorer))
    faults += [document.fault(*problem) for problem in found.problems]
    return recipe_class, settings, scorer, found.warnings


def _envelope(document: Document, faults: list[Fault]) -> tuple[Spec, set[str]]:
    """The document's envelope, and the sections without which it had to be read: the faults inside
    the sound ones are found in the same go. Raises SpecError where too many are faulty."""
    try:
        return parse_spec(document), set()
    except SpecError as error:
        faults += error.faults
        faulty = {re.split(r"[.\[]", fault.field or "")[0] for fault in error.faults}
    stand_ins: dict[str, JsonValue] = {"name": "faulty", "tasks": [{}], "sampler": {}}
    faulty |= stand_ins.keys() - document.values.keys()
    sound = {key: value for key, value in document.values.items() if key not in faulty}
    try:
        return parse_spec(replace(document, values={**stand_ins, **sound})), faulty
    except SpecError:
        raise SpecError(faults) from None


def _scorer(
    document: Document, at: Path_, settings: ScorerSettings, binding: Binding, faults: list[Fault]
) -> Scorer | None:
    if len({canonical(judge.model_dump(mode="json")) for judge in settings.judges}) > 1:
        fix = "give all judges of a run the same model and parameters"
        faults.append(document.fault(at, "names judges that are sampled differently", fix))
        return None
    try:
        return bound(settings, binding)
    except UsageError as error:
        faults.append(document.fault(at, str(error), error.hint))
        return None


def _sampler_settings(
    document: Document, spec: Spec, faults: list[Fault]
) -> SamplerSettings | None:
    at: Path_ = ("sampler",)
    section = spec.sampler
    known = sorted(SamplerSettings.model_fields)
    meant = {*section, *(nearest(key, known) for key in section)}
    if "recorded" in section and "model" in section:
        fix = "keep `recorded` to verify what was sampled elsewhere, `model` to sample"
        faults.append(document.fault(at, "has both `model` and `recorded`", fix))
    elif not {"recorded", "model"} & meant:
        fix = "add `model: local/smollm2-135m`, any litellm model, or `recorded: {file: …}`"
        faults.append(document.fault(at, "names no model", fix))
    try:
        settings = SamplerSettings.model_validate(section)
    except ValidationError as error:
        faults += faults_of(error, document, at, SamplerSettings)
        return None
    if not {"recorded", "model"} & section.keys():
        return None
    if settings.recorded is not None:
        faults += _recorded_faults(document, settings.recorded)
    try:
        revision = samplers.revision_of(settings, document.path.parent)
    except UsageError as error:
        faults.append(document.fault((*at, "model"), str(error), error.hint))
        return None
    return settings.model_copy(update={"revision": revision})


def _recorded_faults(document: Document, recorded: Recorded) -> Iterator[Fault]:
    at: Path_ = ("sampler", "recorded")
    if recorded.text is not None and recorded.texts is not None:
        fix = "give `text` (one path) or `texts` (several)"
        yield document.fault((*at, "texts"), "stands beside `text`", fix)
    try:
        RowFile(document.path.parent / recorded.file, recorded.file)
    except SpecError as error:
        for fault in error.faults:
            said = f"{recorded.file} {fault.problem}"
            yield document.fault((*at, "file"), said, fault.fix)


def _renderer(
    document: Document, spec: Spec, settings: SamplerSettings, faults: list[Fault]
) -> Renderer | None:
    try:
        return Renderer(settings, gold_column=_gold_column(spec))
    except SectionError as error:
        faults += [document.fault(("sampler", *at), said, fix) for at, said, fix in error.problems]
        return None


def _gold_column(spec: Spec) -> str:
    """The source column that holds the golds, which no template may see."""
    fields = spec.tasks.fields if isinstance(spec.tasks, TaskFile) else None
    gold = fields.gold if fields is not None else None
    column = gold.column if isinstance(gold, GoldFrom) else gold
    return column or "gold"


def _scorer_settings(
    document: Document, spec: Spec, recipe_class: Any, settings: Any, faults: list[Fault]
) -> ScorerSettings | None:
    """The spec's scorer, or the recipe's own where its section has one."""
    try:
        if hasattr(recipe_class, "scorer_settings"):
            own: ScorerSettings | None = settings and recipe_class.scorer_settings(settings, spec)
            if own is not None or settings is None:
                return own
        if spec.scorer is not None:
            return parse_scorer(spec.scorer, ("scorer",))
    except SectionError as error:
        faults += [document.fault(at, said, fix) for at, said, fix in error.problems]
        return None
    fix = "add `scorer: numeric`, `exact`, `choice`, … (see the README)"
    faults.append(document.fault((), "`scorer` is missing", fix))
    return None


def _recipe(document: Document, spec: Spec, command: str, faults: list[Fault]) -> tuple[Any, Any]:
    module, _, name = recipes.REGISTRY[command].partition(":")
    recipe_class = getattr(import_module(module), name)
    section = command.replace("-", "_")
    raw: Any = getattr(spec, section, {})
    try:
        return recipe_class, recipe_class.Settings.model_validate(raw)
    except ValidationError as error:
        faults += faults_of(error, document, (section,), recipe_class.Settings)
        return recipe_class, None


def _stream(
    document: Document,
    source: TaskFile | list[dict[str, JsonValue]],
    at: Path_,
    faults: list[Fault],
) -> TaskStream | None:
    try:
        return TaskStream(source, document.path.parent, document, at)
    except SpecError as error:
        faults += error.faults
        return None


def _canaries(
    document: Document, spec: Spec, faults: list[Fault]
) -> tuple[CanarySettings, TaskStream | None]:
    """The canaries section, and the stream of its anchors."""
    at: Path_ = ("canaries",)
    try:
        settings = CanarySettings.model_validate(spec.canaries)
    except ValidationError as error:
        faults += faults_of(error, document, at, CanarySettings)
        return CanarySettings(), None
    if not settings.anchors:
        return settings, None
    return settings, _stream(document, settings.anchors, (*at, "anchors"), faults)


def _inline_secrets(document: Document) -> list[Fault]:
    """Keys come from the environment; a spec gets committed and copied into run directories."""
    found: list[Fault] = []
    fix = "delete it and set the provider's environment variable, e.g. OPENAI_API_KEY"

    def walk(value: Any, at: Path_) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if _SECRET_NAME.search(name) and isinstance(inner, str) and at[-1:] != ("headers",):
                    said = "holds a secret; keys come from the environment only"
                    found.append(document.fault((*at, name), said, fix))
                walk(inner, (*at, name))
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, (*at, number))

    for section in ("sampler", "scorer", "best_of_n", "step_rewards"):
        walk(document.values.get(section), (section,))
    return found
