"""From a task to the one request that all of its candidate draws share.

Templates are sandboxed Jinja over the task (`prompt`, `id`, `metadata`, `row`; never the gold);
an undefined name is an error. `system` is plain text, no template.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from labelkit.codec import unwritable
from labelkit.errors import Fault, SpecError
from labelkit.records import Message, Request, Task
from labelkit.schema import response_schema
from labelkit.spec import Path_, Problem, Section, SectionError, dotted
from labelkit.templates import Template, TemplateFault

VARIABLES = ("prompt", "id", "metadata", "row")
PLAIN_TEMPLATE = "{{ prompt }}"


class MessageTemplate(Section):
    """One templated chat message."""

    role: Literal["system", "developer", "user", "assistant"]
    template: str


class PromptSettings(Section):
    """The half of a sampler section that shapes the request (and so its digest)."""

    model: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    api: Literal["chat", "completions"] = "chat"
    system: str | None = None
    template: str = PLAIN_TEMPLATE
    messages: list[MessageTemplate] | None = None
    response: dict[str, Any] | None = None
    tools: list[dict[str, JsonValue]] = []
    tool_choice: JsonValue = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: int | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    logprobs: bool | int | None = None
    extra_body: dict[str, JsonValue] | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None


PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "stop",
    "seed",
    "reasoning_effort",
    "logprobs",
    "tool_choice",
    "extra_body",
    "chat_template_kwargs",
)
"""The settings that travel in `Request.parameters`, where set."""


def check(settings: PromptSettings) -> list[Problem]:
    """All that is wrong with a prompt before any task is seen; paths start inside the section."""
    problems: list[Problem] = []
    both = settings.messages is not None and settings.template != PLAIN_TEMPLATE
    if both:
        fix = "keep one of them"
        problems.append(Problem(("messages",), "stands beside `template`", fix))
    if settings.messages == []:
        problems.append(Problem(("messages",), "is empty", "add a message, or leave it out"))
    if settings.api == "completions":
        for name in ("system", "messages", "tools"):
            if getattr(settings, name):
                fix = "put it into `template`, or use api: chat"
                problems.append(Problem((name,), "is not for api: completions", fix))
    roles = [message.role for message in settings.messages or ()]
    if settings.system is not None and "system" in roles:
        fix = "keep one of them"
        problems.append(Problem(("system",), "stands beside a system message", fix))
    for at, text in _texts(settings):
        problem = unwritable(text)
        if problem:
            problems.append(Problem(at, problem))
        elif at != ("system",):
            try:
                Template(text, VARIABLES)
            except TemplateFault as error:
                problems.append(Problem(at, str(error), error.fix))
    if settings.response is not None:
        try:
            response_schema(settings.response)
        except SectionError as error:
            problems += error.problems
    return problems


def _texts(settings: PromptSettings) -> list[tuple[Path_, str]]:
    texts: list[tuple[Path_, str]] = [(("template",), settings.template)]
    if settings.system is not None:
        texts.append((("system",), settings.system))
    for i, message in enumerate(settings.messages or ()):
        texts.append((("messages", i, "template"), message.template))
    return texts


class Renderer:
    """Makes the request of each task; templates are compiled once.

    Raises SectionError with all that `check` finds. `section` names the spec's section in messages.
    `gold_column` is the source column with the gold, hidden from templates with all below it.
    """

    def __init__(
        self, settings: PromptSettings, section: str = "sampler", gold_column: str = "gold"
    ) -> None:
        problems = check(settings)
        if problems:
            raise SectionError(problems)
        self._settings = settings
        self._section = section
        self._hidden = gold_column.partition(".")[0]
        self._templates = {
            at: Template(text, VARIABLES) for at, text in _texts(settings) if at != ("system",)
        }
        self._system: tuple[Message, ...] = ()
        if settings.system is not None:
            self._system = ({"role": "system", "content": settings.system},)
        schema = settings.response
        self._schema = None if schema is None else response_schema(schema)
        dumped = settings.model_dump(mode="python", include=set(PARAMETERS), exclude_none=True)
        self._parameters = {name: dumped[name] for name in PARAMETERS if name in dumped}

    @property
    def response_schema(self) -> dict[str, JsonValue] | None:
        """The JSON Schema that replies must fit, None for free text."""
        return self._schema

    @property
    def never_fails(self) -> bool:
        """No task can be such that it has no request."""
        settings = self._settings
        plain = settings.template == PLAIN_TEMPLATE and settings.messages is None
        return plain and settings.system is None and settings.api == "chat"

    def render(self, task: Task) -> Request:
        """The request that all candidate draws of a task share.

        A chat prompt is sent as it is behind `system`; a `template` other than the default one is
        applied to the text of its last user message. Raises SpecError naming the task.
        """
        settings = self._settings
        completions = settings.api == "completions"
        if completions and not isinstance(task.prompt, str):
            raise self._fault(task, ("api",), "is completions, but the prompt is chat messages")
        return Request(
            model=settings.model,
            revision=settings.revision,
            api=settings.api,
            messages=() if completions else (*self._system, *self._messages(task)),
            text=self._text(task, str(task.prompt), ("template",)) if completions else None,
            parameters=self._parameters,
            response_schema=self._schema,
            tools=tuple(settings.tools),
        )

    def _messages(self, task: Task) -> tuple[Message, ...]:
        prompt, templates = task.prompt, self._settings.messages
        if isinstance(prompt, str):
            if templates is None:
                return ({"role": "user", "content": self._text(task, prompt, ("template",))},)
            return tuple(
                {
                    "role": message.role,
                    "content": self._text(task, prompt, ("messages", i, "template")),
                }
                for i, message in enumerate(templates)
            )
        if templates is not None:
            problem = "would replace the chat messages of the prompt"
            raise self._fault(task, ("messages",), problem, "use `template`, or text prompts")
        if self._system and any(message.get("role") == "system" for message in prompt):
            problem = "stands beside a system message of the prompt"
            raise self._fault(task, ("system",), problem, "keep one of them")
        if self._settings.template == PLAIN_TEMPLATE:
            return prompt
        users = [i for i, message in enumerate(prompt) if message.get("role") == "user"]
        content = prompt[users[-1]].get("content") if users else None
        if not isinstance(content, str):
            problem = "has no user message with text to be applied to"
            raise self._fault(task, ("template",), problem, f"leave it at {PLAIN_TEMPLATE!r}")
        last = {**prompt[users[-1]], "content": self._text(task, content, ("template",))}
        return (*prompt[: users[-1]], last, *prompt[users[-1] + 1 :])

    def _text(self, task: Task, prompt: str, at: Path_) -> str:
        if at == ("template",) and self._settings.template == PLAIN_TEMPLATE:
            return prompt  # however long: the bounds are for what templates make of it
        row = {name: value for name, value in (task.row or {}).items() if name != self._hidden}
        variables = {"prompt": prompt, "id": task.id, "metadata": task.metadata, "row": row}
        try:
            text = self._templates[at].render(variables)
        except TemplateFault as error:
            raise self._fault(task, at, str(error), error.fix) from None
        if not text.strip():
            raise self._fault(task, at, "gives an empty text", "use {{ prompt }} in it")
        return text

    def _fault(self, task: Task, at: Path_, problem: str, fix: str | None = None) -> SpecError:
        said = f"task {task.id!r}: {problem}"
        field = f"{self._section}.{dotted(at)}"
        return SpecError([Fault(said, line=task.line, field=field, fix=fix)])
