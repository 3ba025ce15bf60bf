"""Continuations of a solution's prefix: what the completer is asked, and how its reply is read.

How faithful a completer keeps to the prefix decides what its success means: one that repairs or
restarts measures how easily an error is mended, not whether a step is right. So the way a prefix is
given is recorded, and restarts and repairs are counted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import JsonValue

from labelkit.errors import Fault, SpecError
from labelkit.recipes.steps import Steps
from labelkit.records import Attempt, Message, NotRun, Request, Sampled, Task
from labelkit.reply import read_reply
from labelkit.samplers import SamplerSettings
from labelkit.schema import response_schema
from labelkit.seams import Draw
from labelkit.spec import Problem, Section, SectionError
from labelkit.templates import Template, TemplateFault

Mode = Literal["prompt", "prefill", "continuation"]
"""How a prefix is given: quoted in the prompt, as the start of the assistant's turn, or as raw text
behind a raw prompt (prefill with api: completions)."""

VARIABLES = ("prompt", "steps", "id", "metadata")
PINNED = """\
{{ prompt }}

The solution so far:

{{ steps }}

Go on from exactly this point to the final answer. Take every step above as it is written, even if \
one seems wrong, and build on its result. Do not check, correct, repeat or restart any of it."""

_REPAIR = re.compile(
    r"\b(?:wait|mistake|actually|incorrect|correction|miscalculat\w*|let me re\w*|"
    r"should (?:be|have been))\b",
    re.IGNORECASE,
)


class Completer(Section):
    """What the completer is asked with `prefix_mode: prompt`, beside the sampler's model and
    parameters. `template` may use prompt, steps, id and metadata. `system` and `response` stand in
    for the sampler's; without `response` it is the sampler's, with `steps` left out and room to
    reason."""

    system: str | None = None
    template: str = PINNED
    response: dict[str, Any] | None = None

    def problems(self) -> list[Problem]:
        found: list[Problem] = []
        try:
            Template(self.template, VARIABLES)
        except TemplateFault as error:
            found.append(Problem(("template",), str(error), error.fix))
        if "steps" not in self.template:
            found.append(Problem(("template",), "shows no prefix", "use {{ steps }} in it"))
        if self.response is not None:
            try:
                response_schema(self.response)
            except SectionError as error:
                found += error.problems
        return found


class Prefixes:
    """Asks for continuations and has them verified. `mode` is as it is recorded."""

    def __init__(self, mode: Mode, completer: Completer, sampler: SamplerSettings) -> None:
        self.mode: Mode = mode
        self._completer = completer
        self._template = Template(completer.template, VARIABLES)
        self._schema = response_schema(completer.response) if completer.response else None
        # vLLM and its like go on with the last message only where they are told to.
        own_server = sampler.transport == "direct" or sampler.api_base is not None
        told: dict[str, JsonValue] = {
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
        self._told = told if own_server else {}

    def request(self, task: Task, solver: Request, steps: Steps, number: int) -> Request:
        """The request for continuations of the first `number` steps (0: the bare problem)."""
        prefix = steps.prefix(number)
        if self.mode == "continuation":
            # A sampled prefix brings its own white space; a given one starts on a line of its own.
            text = solver.text or ""
            if prefix and not (text[-1:].isspace() or prefix[0].isspace()):
                text += "\n"
            return solver.model_copy(update={"text": text + prefix})
        if self.mode == "prefill":
            turn: Message = {"role": "assistant", "content": prefix}
            parameters = dict(solver.parameters)
            if self._told:
                extra = parameters.get("extra_body")
                own = extra if isinstance(extra, dict) else {}
                parameters["extra_body"] = {**own, **self._told}
            update = {"messages": (*solver.messages, turn), "parameters": parameters}
            return solver.model_copy(update=update)
        return self._pinned(task, solver, prefix)

    def _pinned(self, task: Task, solver: Request, prefix: str) -> Request:
        """The solver's request with the prefix quoted in its last message."""
        if solver.api == "completions":
            text = self._render(task, solver.text or "", prefix)
            return solver.model_copy(update={"text": text})
        messages = list(solver.messages)
        last = messages[-1]
        if last.get("role") != "user" or not isinstance(last.get("content"), str):
            said = f"task {task.id!r}: its last message is no user's text to quote the prefix in"
            raise SpecError([Fault(said, line=task.line, field="step_rewards.prefix_mode")])
        text = self._render(task, str(last["content"]), prefix)
        messages[-1] = {**last, "content": text}
        if self._completer.system is not None:
            messages = [message for message in messages if message.get("role") != "system"]
            messages.insert(0, {"role": "system", "content": self._completer.system})
        schema = self._schema or _without_steps(solver.response_schema)
        update = {"messages": tuple(messages), "response_schema": schema}
        return solver.model_copy(update=update)

    def _render(self, task: Task, prompt: str, prefix: str) -> str:
        variables = {"prompt": prompt, "steps": prefix, "id": task.id, "metadata": task.metadata}
        try:
            return self._template.render(variables)
        except TemplateFault as error:
            said = f"task {task.id!r}: {error}"
            fault = Fault(said, None, task.line, "step_rewards.completer.template", error.fix)
            raise SpecError([fault]) from None

    async def rollouts(
        self,
        task: Task,
        solver: Request,
        steps: Steps,
        number: int,
        stage: str,
        indexes: Sequence[int],
        draw: Draw,
    ) -> list[Attempt | NotRun]:
        """Verified continuations of the first `number` steps. A prefilled one is verified as the
        whole turn that it ends, since its answer may stand in the prefix."""
        request = self.request(task, solver, steps, number)
        prefix = None if self.mode == "prompt" else steps.prefix(number)

        async def rollout(index: int) -> Attempt | NotRun:
            if prefix is None:
                return await draw(request, stage=stage, sample_index=index)
            sampled = await draw.sample(request, stage=stage, sample_index=index)
            if isinstance(sampled, NotRun):
                return sampled
            return await draw.score(_whole_turn(request, sampled, prefix))

        if not draw.waits:
            return [await rollout(index) for index in indexes]
        return await asyncio.gather(*(rollout(index) for index in indexes))

    def restarts(self, attempt: Attempt, steps: Steps, number: int) -> bool:
        """Whether a continuation restates the prefix: its first step stands in it again."""
        return _folded(steps.texts[0]) in _folded(self._continuation(attempt, steps, number))

    def repairs(self, attempt: Attempt, steps: Steps, number: int) -> bool:
        """Whether a continuation speaks of an error (wait, mistake, actually, …)."""
        return _REPAIR.search(self._continuation(attempt, steps, number)) is not None

    def _continuation(self, attempt: Attempt, steps: Steps, number: int) -> str:
        reply = attempt.sampled.reply
        if reply is None:
            return ""
        if isinstance(reply.parsed, Mapping):
            return "\n".join(str(value) for value in reply.parsed.values())
        whole = "\n".join(part for part in (reply.reasoning, reply.text) if part)
        return whole if self.mode == "prompt" else whole.removeprefix(steps.prefix(number))


def _whole_turn(request: Request, sampled: Sampled, prefix: str) -> Sampled:
    """The draw with the prefix put before its text, unless the model repeated it."""
    completion = sampled.completion
    if completion is None or completion.text.startswith(prefix):
        return sampled
    whole = completion.model_copy(update={"text": prefix + completion.text})
    reply = read_reply(request, whole, sampled.key)
    return replace(sampled, completion=whole, reply=reply)


def _without_steps(schema: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    """A solver's schema for a completer: no steps to list again, but room to reason."""
    members = schema.get("properties") if schema is not None else None
    if schema is None or not isinstance(members, dict) or "steps" not in members:
        return schema
    kept = {name: member for name, member in members.items() if name != "steps"}
    kept = {"reasoning": {"type": "string"}, **kept}
    required = schema.get("required")
    names: list[JsonValue] = list(required) if isinstance(required, list) else []
    names = [name for name in names if name in kept and name != "reasoning"]
    return {**schema, "properties": kept, "required": ["reasoning", *names]}


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def prefix_mode(asked: Literal["prompt", "prefill"], sampler: SamplerSettings) -> Mode:
    """Prefill through the completions API is a raw continuation."""
    return "continuation" if asked == "prefill" and sampler.api == "completions" else asked


def prefill_problem(sampler: SamplerSettings) -> str | None:
    """Why this model takes no prefill, or None. Asks litellm's table for hosted models."""
    if sampler.response is not None:
        return "continues free text, but the sampler has a `response` schema"
    if sampler.api == "completions":
        return None
    thinking = sampler.reasoning_effort or any(
        "think" in n for n in sampler.chat_template_kwargs or ()
    )
    if thinking:
        return "does not go with thinking in chat: its template strips or splits think blocks"
    if sampler.transport in ("local", "direct") or sampler.api_base is not None:
        return None
    from labelkit.samplers.litellm import load

    litellm = load()
    try:
        takes = litellm.get_model_info(sampler.model).get("supports_assistant_prefill")
    except Exception:  # litellm raises a bare Exception for a model that its table lacks
        takes = None
    return None if takes else f"is not taken by {sampler.model}, says litellm's table"
