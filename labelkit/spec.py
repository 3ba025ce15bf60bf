"""The spec: the envelope's models, and documents that know the line of everything in them.

The sections of samplers, scorers and commands stay raw here; `plan` parses them with the models of
the modules that own them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from labelkit.errors import Fault, SpecError
from labelkit.strict_yaml import MAX_BYTES, parse_yaml

Path_ = tuple[str | int, ...]

MAX_PROBLEMS = 100
"""Of one section; a stranger's spec may have any number, and each costs a search for its fix."""


class Section(BaseModel):
    """A part of the spec: unknown keys are faults, values are never coerced to another type."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class Problem(NamedTuple):
    """What is wrong with a section, and where in it; a document makes it a fault with its line."""

    at: Path_
    problem: str
    fix: str | None = None


class SectionError(ValueError):
    """A raw section that its model refuses; raised inside a validator, its paths are kept."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{dotted(at)}: {said}" for at, said, _ in self.problems))


class GoldFrom(Section):
    """A gold taken out of a text column: after the last `after`, or the regex's first group."""

    column: str | None = None
    after: str | None = None
    regex: str | None = None


class FieldMap(Section):
    """Which column of a foreign file is what; dotted paths reach into objects.

    `metadata` maps names to columns, or is `all` for every column not mapped elsewhere.
    """

    id: str | None = None
    prompt: str = "prompt"
    gold: str | GoldFrom | None = None
    metadata: dict[str, str] | Literal["all"] = {}


class TaskFile(Section):
    """Where tasks come from. `fields` only for foreign files; native ones are read strictly."""

    file: str
    fields: FieldMap | None = None
    where: dict[str, JsonValue] = {}
    shuffle: int | None = None
    dedupe: bool = False
    on_bad_gold: Literal["error", "drop"] = "error"


class Spec(Section):
    """The envelope. Command sections and `sampler`, `scorer`, `canaries` are raw JSON."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", examples=["word-problems"])
    ]
    tasks: TaskFile | Annotated[list[dict[str, JsonValue]], Field(min_length=1)]
    sampler: dict[str, JsonValue]
    scorer: JsonValue = None
    k: Annotated[int, Field(ge=1, le=100_000)] = 8
    gates: list[str] = []
    slice_by: str | list[str] = []
    adaptive: bool = False
    on_truncated: Literal["fail", "unscored"] = "fail"
    on_invalid_output: Literal["fail", "unscored"] = "fail"
    max_unscored: Annotated[float, Field(ge=0, le=1)] = 0.05
    budget: Annotated[float, Field(gt=0, le=1e9)] | None = None
    max_tokens_total: Annotated[int, Field(ge=1)] | None = None
    canaries: dict[str, JsonValue] = {}
    learning_zone: dict[str, JsonValue] = {}
    verify_traces: dict[str, JsonValue] = {}
    best_of_n: dict[str, JsonValue] = {}
    rl_select: dict[str, JsonValue] = {}
    step_rewards: dict[str, JsonValue] = {}


@dataclass(frozen=True)
class Document:
    """A YAML file as loaded: plain values, and the line (from 1) of every key and item by path."""

    path: Path
    shown: str
    values: dict[str, JsonValue]
    lines: Mapping[Path_, int]
    overrides: Mapping[str, JsonValue] = field(default_factory=dict)

    def line_of(self, at: Path_) -> int | None:
        """The line of `at`, or of the nearest thing around it; None for what a flag set."""
        while at:
            if at in self.lines:
                return self.lines[at]
            at = at[:-1]
        return None

    def fault(self, at: Path_, problem: str, fix: str | None = None) -> Fault:
        """A fault of this document at a path."""
        return Fault(problem, self.shown, self.line_of(at), dotted(at) or None, fix)


def load(
    path: Path, overrides: Sequence[str] = (), flags: Mapping[str, JsonValue] | None = None
) -> Document:
    """Read a YAML file; `overrides` are `a.b=value` with the value in YAML, `flags` win over them.

    Raises SpecError. Relative paths inside the document are relative to the file's folder.
    """
    shown = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        fix = "pass the path of a YAML spec; `labelkit init` writes one"
        raise SpecError([Fault(f"cannot be read: {error.strerror}", shown, fix=fix)]) from None
    values, lines = parse_yaml(raw, shown)
    if not isinstance(values, dict):
        raise SpecError([Fault("is not a mapping of keys to values", shown, 1)])
    applied: dict[str, JsonValue] = {}
    for override in overrides:
        name, separator, text = override.partition("=")
        if not separator or not all(part.strip() for part in name.split(".")):
            fix = "write it as --set sampler.temperature=0.7"
            raise SpecError([Fault("is not key=value", field=f"--set {override}", fix=fix)])
        value, _ = parse_yaml(text.encode(), f"--set {name}")
        _put(values, name.strip(), value, lines)
        applied[name.strip()] = value
    for name, value in (flags or {}).items():
        _put(values, name, value, lines)
        applied[name] = value
    return Document(path, shown, values, lines, applied)


def parse_spec(document: Document) -> Spec:
    """The envelope of a document. Raises SpecError with all of its faults."""
    try:
        return Spec.model_validate(document.values)
    except ValidationError as error:
        raise SpecError(faults_of(error, document, (), Spec)) from None


def faults_of(
    error: ValidationError, document: Document, at: Path_, model: type[BaseModel] | None
) -> list[Fault]:
    """A model's validation errors as faults of the document section at `at`."""
    section: JsonValue = document.values
    for part in at:
        section = _members(section).get(part)
    return sorted(
        (
            document.fault((*at, *where), said, fix)
            for where, said, fix in problems_of(error, model, section)
        ),
        key=lambda fault: fault.line or 0,
    )


def problems_of(
    error: ValidationError, model: type[BaseModel] | None, section: JsonValue
) -> list[Problem]:
    """The validation errors of a section, those of sections parsed by its validators included."""
    errors = error.errors(include_url=False)
    items = [(_path_of(item, section), item) for item in errors[:MAX_PROBLEMS]]
    problems: list[Problem] = []
    wrong: dict[Path_, list[str]] = {}
    for where, item in items:
        kind = str(item["type"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, SectionError):
            problems += [Problem((*where, *at), said, fix) for at, said, fix in inner.problems]
        elif kind == "extra_forbidden":
            problems.append(_unknown_key(where, _model_at(model, where[:-1])))
        elif kind == "missing":
            problems.append(Problem(where[:-1], f"`{where[-1]}` is missing", "add it"))
        elif kind == "string_pattern_mismatch":
            said = f"{_shown(item['input'], where)}{_said(item)}"
            problems.append(Problem(where, said, _example(model, where)))
        elif kind not in _EXPECTED:
            problems.append(Problem(where, f"{_shown(item['input'], where)}{_said(item)}"))
        else:
            expected = str(_EXPECTED[kind] or item["ctx"]["expected"])
            if expected not in wrong.setdefault(where, [_shown(item["input"], where)]):
                wrong[where].append(expected)
    for where, (shown, *expected_) in wrong.items():
        # Where a union's member fits so far that its parts are faulty, the others are noise.
        inside = [problem.at for problem in problems] + [at for at in wrong if at != where]
        if not any(at[: len(where)] == where for at in inside):
            problems.append(Problem(where, f"{shown}should be {' or '.join(expected_)}"))
    if len(errors) > MAX_PROBLEMS:
        problems.append(Problem((), f"has {len(errors) - MAX_PROBLEMS:,} more faults"))
    return list(dict.fromkeys(problems))


def first_problem(error: ValidationError, model: type[BaseModel], value: JsonValue) -> str:
    """What is wrong with a value that is no section of a spec, in one sentence."""
    at, said, fix = problems_of(error, model, value)[0]
    head = f"{dotted(at)}: {said}" if at else said
    return f"{head} ({fix})" if fix else head


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word closest to a misspelt one, None where nothing is close."""
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return found[0] if found else None


_EXPECTED = {
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "literal_error": None,
}


def _path_of(item: Mapping[str, Any], section: JsonValue) -> Path_:
    """Where an error stands in the document. Pydantic puts the tried member of a union into `loc`;
    such parts, which are no keys of the document, are left out."""
    path: list[str | int] = []
    for part in item["loc"]:
        members = _members(section)
        if part in members:
            path.append(part)
            section = members[part]
    if item["type"] == "missing":
        path.append(item["loc"][-1])
    return tuple(path)


def _members(value: JsonValue) -> Mapping[str | int, JsonValue]:
    if isinstance(value, list):
        return dict(enumerate(value))
    return dict(value.items()) if isinstance(value, dict) else {}


def _model_at(model: Any, path: Path_) -> type[BaseModel] | None:
    """The model that parses what stands at `path` below what `model` parses."""
    for part in path:
        if isinstance(part, str):
            fields = model.model_fields.items() if model else ()
            known = {field.alias or name: field for name, field in fields}.get(part)
            model = _model_in(known.annotation) if known else None
    found: type[BaseModel] | None = model
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _unknown_key(where: Path_, model: type[BaseModel] | None) -> Problem:
    fields = model.model_fields.items() if model else ()
    known = sorted(field.alias or name for name, field in fields)
    guess = nearest(str(where[-1]), known)
    if guess:
        fix: str | None = f"did you mean `{guess}`?"
    else:
        fix = f"known here: {', '.join(known)}" if known else None
    return Problem(where, "unknown key", fix)


def _example(model: type[BaseModel] | None, where: Path_) -> str | None:
    """The fix for a text of another form: the field's own example, where it has one."""
    parent = _model_at(model, where[:-1])
    known = parent.model_fields.get(str(where[-1])) if parent else None
    return f"write it as `{known.examples[0]}`" if known and known.examples else None


def _said(item: Mapping[str, Any]) -> str:
    said = str(item["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return said[:1].lower() + said[1:]


def _shown(value: Any, where: Path_) -> str:
    """A value before what is wrong with it; nothing where it may be secret, and the start of what
    is too long to be read."""
    hidden = isinstance(value, dict | list) or {"headers", "api_base"} & {*where}
    text = "" if hidden else repr(value)
    return text and (f"{text}: " if len(text) <= 60 else f"{text[:57]}…: ")


def dotted(at: Path_) -> str:
    """A path as messages show it: `tasks[3].gold`."""
    text = ""
    for part in at:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _put(
    values: dict[str, JsonValue], name: str, value: JsonValue, lines: dict[Path_, int]
) -> None:
    """Set a dotted name in the document; what it replaces has no line any more."""
    keys = name.split(".")
    place = values
    for depth, key in enumerate(keys[:-1]):
        inner = place.get(key)
        if inner is None:
            inner = place[key] = {}
        if not isinstance(inner, dict):
            at = ".".join(keys[: depth + 1])
            raise SpecError([Fault(f"`{at}` is not a section", field=f"--set {name}")])
        place = inner
    place[keys[-1]] = value
    for known in [at for at in lines if at[: len(keys)] == tuple(keys)]:
        del lines[known]
