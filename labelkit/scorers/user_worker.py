"""The worker's side of the `python` and `verl` scorers: loads a user's function and calls it.

Runs in a worker process of `sandbox.pool`. Turns whatever the function returns into JSON that
`user_code` judges; must not decide anything about passing by itself.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from labelkit.records import Abstention, Reply, Score, Task

Function = Callable[..., Any]


class UserCodeError(Exception):
    """A user's function raised or returned what is no verdict; the message says where."""


def load(argument: Mapping[str, Any]) -> Callable[[Any], JsonValue]:
    """The answering function of a worker: `argument` has `file`, `function` and `kind`.

    The file's folder comes first on the module path, as it does under `python file.py`.
    Raises whatever the file raises when it is run, AttributeError where it has no such function.
    """
    function = _find(Path(argument["file"]), argument["function"])
    if argument["kind"] == "verl":
        accepted = _verl_arguments(function)
        return lambda message: _call(function, (), {name: message[name] for name in accepted})
    takes_task = wants_task(function)

    def answer(message: Any) -> JsonValue:
        task = Task.model_validate(message["task"])
        arguments = (Reply.model_validate(message["reply"]), task.gold, task)
        return _call(function, arguments[: 3 if takes_task else 2], {})

    return answer


def wants_task(function: Function) -> bool:
    """Whether a function of (attempt, gold) takes the task as its third argument.

    It does where a third positional parameter has no default or is called `task`.
    Raises TypeError where the function takes neither two nor three positional arguments.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    third = parameters[2] if len(parameters) > 2 else None
    takes_task = third is not None and (third.default is third.empty or third.name == "task")
    inspect.signature(function).bind(*range(3 if takes_task else 2))
    return takes_task


def _find(file: Path, name: str) -> Function:
    sys.dont_write_bytecode = True  # a user's folder is not ours to write to
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, name)
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}, not a function")
    found: Function = function
    return found


def _verl_arguments(function: Function) -> list[str]:
    """Which of verl's four keyword arguments the function takes; all of them with **kwargs."""
    names = ["data_source", "solution_str", "ground_truth", "extra_info"]
    signature = inspect.signature(function)
    parameters = signature.parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        names = [name for name in names if name in parameters]
    signature.bind(**dict.fromkeys(names))
    return names


def _call(function: Function, positional: tuple[Any, ...], named: dict[str, Any]) -> JsonValue:
    try:
        returned = function(*positional, **named)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_wait_for(returned))
    except Exception as error:
        raise UserCodeError(f"{type(error).__name__}: {error}{_place(error)}") from None
    return _as_json(returned)


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable


def _place(error: BaseException) -> str:
    """Where in the user's files it was raised: ` (reward.py:12)`."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file != Path(__file__):
            place = f" ({file.name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def _as_json(returned: Any) -> JsonValue:
    if isinstance(returned, Score | Abstention):
        dumped: dict[str, JsonValue] = returned.model_dump(mode="json", exclude_defaults=True)
        return {"abstained": True, **dumped} if isinstance(returned, Abstention) else dumped
    if isinstance(returned, Mapping):
        return {str(key): _as_json(value) for key, value in returned.items()}
    if isinstance(returned, list | tuple):
        return [_as_json(value) for value in returned]
    if isinstance(returned, float) and not math.isfinite(returned):
        raise UserCodeError(f"returned {returned}; a reward is a finite number")
    if returned is None or isinstance(returned, bool | int | float | str):
        return returned
    if hasattr(returned, "item"):  # scalars of numpy, torch and jax
        return _as_json(returned.item())
    raise UserCodeError(f"returned a {type(returned).__name__}; return a bool, a number or a Score")
