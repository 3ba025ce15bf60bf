"""Scorers: a reply in, a verdict out. One file a kind; this page is their registry.

A scorer's settings are a frozen pydantic model whose fields are its YAML arguments. `bind` makes
the scorer that the engine calls; a scorer without resources of its own returns itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue

if TYPE_CHECKING:
    from labelkit.samplers import SamplerSettings
    from labelkit.seams import Scorer

REGISTRY: dict[str, str] = {
    "all": "labelkit.scorers.composition:AllOf",
    "any": "labelkit.scorers.composition:AnyOf",
    "by": "labelkit.scorers.composition:By",
    "choice": "labelkit.scorers.choice:Choice",
    "command": "labelkit.scorers.command:CommandSettings",
    "constraints": "labelkit.scorers.constraints:Constraints",
    "contains": "labelkit.scorers.text:Contains",
    "exact": "labelkit.scorers.text:Exact",
    "json": "labelkit.scorers.structured:Json",
    "judge": "labelkit.scorers.judge:Judge",
    "math": "labelkit.scorers.math:Math",
    "numeric": "labelkit.scorers.numeric:Numeric",
    "program": "labelkit.scorers.program:ProgramSettings",
    "python": "labelkit.scorers.user_code:PythonSettings",
    "regex": "labelkit.scorers.text:Regex",
    "tool_calls": "labelkit.scorers.tool_calls:ToolCalls",
    "verl": "labelkit.scorers.user_code:VerlSettings",
    "weighted": "labelkit.scorers.composition:Weighted",
}
"""YAML name → `module:Class` of its settings; nothing is imported before it is asked for."""


@dataclass(frozen=True)
class Binding:
    """What a scorer may know of its run. `folder`: the spec's, relative paths start there.

    `allow_code`: --allow-code was given.
    `unsafe_no_sandbox`: --unsafe-no-sandbox was given. `processes`: how many workers at most.
    `response_schema` and `tools` are the sampler's.
    """

    folder: Path
    allow_code: bool = False
    unsafe_no_sandbox: bool = False
    processes: int = 2
    response_schema: dict[str, JsonValue] | None = None
    tools: tuple[dict[str, JsonValue], ...] = ()


class ScorerSettings(BaseModel):
    """The YAML arguments of one kind of scorer.

    `SHORT` names the field that `{kind: value}` fills when the value is not a mapping; None where
    there is no such form. `VERSION` rises whenever a verdict may change. `COST` orders the members
    of a composition: 0 looks at text, 1 compares in a worker process, 2 runs code, 3 asks a model.
    `PURE`: a verdict takes the settings, the task and the reply, no draw and nobody else's code.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1
    SHORT: ClassVar[str | None] = None
    COST: ClassVar[int] = 0
    PURE: ClassVar[bool] = False

    @property
    def cost(self) -> int:
        """The rank of the dearest thing that a verdict may take."""
        return self.COST

    @property
    def judges(self) -> tuple[SamplerSettings, ...]:
        """The samplers that a verdict may need, for the engine to make."""
        return ()

    def bind(self, binding: Binding) -> Scorer:
        """The scorer of a run. Raises UsageError for what is missing (a library, a permission)."""
        raise NotImplementedError

    @property
    def identity(self) -> dict[str, JsonValue]:
        """The scorer's fingerprint as far as settings and VERSION make it."""
        settings: dict[str, JsonValue] = self.model_dump(mode="json")
        return {"kind": self.KIND, "version": self.VERSION, "settings": settings}
