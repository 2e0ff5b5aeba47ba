"""What Pydantic finds wrong, as one line for people."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

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


def mistake(error: ValidationError) -> tuple[str, str]:
    """The path of the first wrong field of a file, such as ``matrix[0].nodes``, and what would be right."""
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        return path, "unknown field"
    if first["type"] == "missing":
        return path, "is required"
    reason = _reason(first["msg"])
    if first["type"] == "string_pattern_mismatch":
        reason = "must be letters, digits, '.', '_' and '-', and not begin with '.'"
    self_explaining = first["type"] in ("value_error", "json_invalid") or isinstance(first["input"], dict | list)
    return path, reason if self_explaining else f"{reason}, not {first['input']!r}"


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def _option_mistake(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown field '{field}'"
    if first["type"] == "missing":
        return f"{option_name(field)} is required"
    reason = _reason(first["msg"])
    if not field:
        return reason
    if first["input"] == "":
        return f"{option_name(field)} '': must not be empty"
    return f"{option_name(field)} {first['input']}: {reason}"
