"""What Pydantic finds wrong, as one line for people."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.core.text import did_you_mean
from harness.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)


def option_name(field: str) -> str:
    """The command-line option of a field of the spec: ``timeout_s`` is ``--timeout``."""
    return "--" + field.removesuffix("_s").removesuffix("_steps").replace("_", "-")


def checked(model: type[Model], fields: dict[str, Any]) -> Model:
    """``model(**fields)``. Raises InvalidInput with one line about the first wrong field, named as an option."""
    try:
        return model(**fields)
    except ValidationError as error:
        raise InvalidInput(_option_mistake(error)) from None


def mistake(error: ValidationError, model: type[BaseModel] | None = None) -> tuple[str, str]:
    """The first of ``mistakes``."""
    return mistakes(error, model)[0]


def mistakes(error: ValidationError, model: type[BaseModel] | None = None) -> list[tuple[str, str]]:
    """The path of every wrong field of a file, such as ``matrix[0].nodes``, and what would be right.

    With the ``model`` of the whole file an unknown field is compared with those that there are.
    """
    wrong = []
    for detail in error.errors(include_url=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
        wrong.append((path.lstrip("."), _reason(detail, model)))
    return wrong


def _reason(detail: ErrorDetails, model: type[BaseModel] | None) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        fields = _fields(model, detail["loc"][:-1]) if model else []
        return f"unknown field{f'; {instead}' if (instead := did_you_mean(str(detail['loc'][-1]), fields)) else ''}"
    if kind == "missing":
        return "is required"
    reason = _words(detail["msg"])
    if kind == "string_pattern_mismatch":
        reason = "must be letters, digits, '.', '_' and '-', and not begin with '.'"
    self_explaining = kind in ("value_error", "json_invalid") or isinstance(value, dict | list)
    return reason if self_explaining else f"{reason}, not {value!r}"


def _fields(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """The fields of the table at ``place``."""
    for part in place:
        if isinstance(part, str):
            model = next(_models(model.model_fields[part].annotation))
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _words(message: str) -> str:
    """Pydantic's complaint in the words of files: not of tuples, and not of this program's classes."""
    message = re.sub(r"^\w+ should (?=be|have|match)", "must ", message.removeprefix("Value error, "))
    message = re.sub(r"a valid (dictionary|object)( or instance of \w+)?", "a table", message)
    return re.sub(r"a valid (tuple|list)", "a list", message)


def _option_mistake(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown field '{field}'"
    if first["type"] == "missing":
        return f"{option_name(field)} is required"
    reason = _words(first["msg"])
    if not field:
        return reason
    if first["input"] == "":
        return f"{option_name(field)} '': must not be empty"
    return f"{option_name(field)} {first['input']}: {reason}"
