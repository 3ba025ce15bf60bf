"""From a raw scorer section to settings: the four short forms, misspelt names, every fault.

A section is a name, `{name: argument}`, `{name: {…}}` or a list whose members must all pass. Only
the kinds that are named get imported; nothing is bound here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

from pydantic import BeforeValidator, JsonValue, ValidationError

from labelkit.scorers import REGISTRY, ScorerSettings
from labelkit.spec import Path_, Problem, SectionError, nearest, problems_of

_FORM = "write a name, {name: {…}} or a list of them"


def parse_scorer(section: JsonValue, at: Path_ = ()) -> ScorerSettings:
    """The settings that a section stands for; `at` is where the section stands.

    Raises SectionError with every problem, each with its path from the document's root.
    """
    try:
        return _parse(section)
    except SectionError as error:
        moved = [Problem((*at, *where), said, fix) for where, said, fix in error.problems]
        raise SectionError(moved) from None


def _nested(value: object) -> ScorerSettings:
    return value if isinstance(value, ScorerSettings) else _parse(value)


NestedScorer = Annotated[ScorerSettings, BeforeValidator(_nested)]
"""A field that holds a scorer section; its problems keep their path within the field."""


def _nested_by_name(value: object) -> object:
    if not isinstance(value, dict):
        return value
    scorers: dict[str, ScorerSettings] = {}
    problems: list[Problem] = []
    for name, section in value.items():
        try:
            scorers[name] = _nested(section)
        except SectionError as error:
            problems += [Problem((name, *at), said, fix) for at, said, fix in error.problems]
    if problems:
        raise SectionError(problems)
    return scorers


ScorersByName = Annotated[dict[str, ScorerSettings], BeforeValidator(_nested_by_name)]
"""A field that maps names of any form to scorer sections."""


def _parse(section: object) -> ScorerSettings:
    if isinstance(section, str):
        return _build(_settings_class(section), {}, ())
    if isinstance(section, list):
        return _build(_settings_class("all"), {"scorers": section}, ("scorers",))
    if not isinstance(section, dict):
        raise SectionError([Problem((), f"{section!r} is not a scorer", _FORM)])
    if len(section) != 1:
        said = f"names {len(section)} scorers" if section else "names no scorer"
        fix = "write a list, one {name: {…}} each, where all must pass" if section else _FORM
        raise SectionError([Problem((), said, fix)])
    [(name, argument)] = section.items()
    kind = _settings_class(name)
    if argument is None or isinstance(argument, dict):
        return _build(kind, argument or {}, (), prefix=(name,))
    if kind.SHORT is None:
        fields = ", ".join(kind.model_fields) or "it takes none"
        raise SectionError([Problem((name,), "takes its settings by name", f"known: {fields}")])
    return _build(kind, {kind.SHORT: argument}, (kind.SHORT,), prefix=(name,))


def _settings_class(name: str) -> type[ScorerSettings]:
    if name not in REGISTRY:
        guess = nearest(name, list(REGISTRY))
        fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join(sorted(REGISTRY))}"
        raise SectionError([Problem((), f"unknown scorer `{name}`", fix)])
    module, _, attribute = REGISTRY[name].partition(":")
    kind: type[ScorerSettings] = getattr(import_module(module), attribute)
    return kind


def _build(
    kind: type[ScorerSettings], arguments: dict[str, JsonValue], strip: Path_, prefix: Path_ = ()
) -> ScorerSettings:
    """`strip` is the field name that the section's author did not write, `prefix` what he did."""
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        problems = [
            Problem((*prefix, *(at[1:] if at[:1] == strip else at)), said, fix)
            for at, said, fix in problems_of(error, kind, arguments)
        ]
        raise SectionError(problems) from None
