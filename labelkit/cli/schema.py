"""`labelkit schema`: the JSON Schema of the spec, for editors.

Composed from the models that read the spec, section by section, so that it cannot say anything
else; what only `check` can know (files, golds, templates) is not in it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from labelkit.cli import app

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for your editor."""
    from labelkit import codec

    sys.stdout.write(codec.pretty(spec_schema()).decode("utf-8"))


def spec_schema() -> dict[str, Any]:
    """The whole spec as one draft 2020-12 schema."""
    from labelkit import recipes, scorers
    from labelkit.samplers import SamplerSettings
    from labelkit.spec import Spec

    definitions: dict[str, Any] = {}
    whole = _moved(Spec, definitions)
    members = whole["properties"]
    members["sampler"] = {"$ref": "#/$defs/SamplerSettings"}
    definitions["SamplerSettings"] = _moved(SamplerSettings, definitions)
    kinds = {name: _load(path) for name, path in sorted(scorers.REGISTRY.items())}
    for kind in kinds.values():
        definitions[kind.__name__] = _moved(kind, definitions)
    definitions["ScorerSettings"] = _scorer(kinds)
    members["scorer"] = {"$ref": "#/$defs/ScorerSettings"}
    for command, path in recipes.REGISTRY.items():
        section = command.replace("-", "_")
        if section in members:
            settings = _load(path).Settings
            name = f"{_load(path).__name__}Settings"
            definitions[name] = _moved(settings, definitions)
            members[section] = {"$ref": f"#/$defs/{name}"}
    return {"$schema": _DIALECT, **whole, "title": "labelkit spec", "$defs": definitions}


class _Schema(GenerateJsonSchema):
    """A field that is read by code alone may hold anything, as far as an editor can know."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _moved(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """A model's schema with its definitions moved to the shared ones."""
    found = model.model_json_schema(ref_template="#/$defs/{model}", schema_generator=_Schema)
    for name, definition in found.pop("$defs", {}).items():
        definitions.setdefault(name, definition)
    return found


def _scorer(kinds: dict[str, Any]) -> dict[str, Any]:
    """The forms of a scorer: name, {name: argument}, {name: {…}}, a list that must all pass."""
    forms: dict[str, Any] = {}
    for name, kind in kinds.items():
        settings: dict[str, Any] = {"$ref": f"#/$defs/{kind.__name__}"}
        members = _fields(kind)
        if kind.SHORT is not None:
            forms[name] = {"anyOf": [settings, members[kind.SHORT], {"type": "null"}]}
        else:
            forms[name] = {"anyOf": [settings, {"type": "null"}]}
    return {
        "anyOf": [
            {"enum": list(kinds)},
            {
                "type": "object",
                "properties": forms,
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
            {"type": "array", "items": {"$ref": "#/$defs/ScorerSettings"}, "minItems": 1},
        ]
    }


def _fields(kind: type[BaseModel]) -> dict[str, Any]:
    """The schemas of a model's fields by name."""
    return dict(_moved(kind, {})["properties"])
