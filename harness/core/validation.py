"""Pydantic's complaints, as one line for people."""

import re
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.core.elsewhere import SHOWN
from harness.core.elsewhere import shown as shown_text
from harness.core.text import did_you_mean
from harness.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)


def option_name(field: str) -> str:
    """The command-line option of a field of the spec: ``timeout_s`` is ``--timeout``."""
    return "--" + field.removesuffix("_s").removesuffix("_steps").replace("_", "-")


def checked(model: type[Model], fields: dict[str, object]) -> Model:
    """``model(**fields)``. Raises InvalidInput with one line about the first wrong field, named as an option."""
    try:
        return model(**fields)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
    field, reason = ".".join(map(str, detail["loc"])), _words(detail["msg"])
    if detail["type"] == "extra_forbidden":
        reason = f"unknown field '{field}'"
    elif detail["type"] == "missing":
        reason = f"{option_name(field)} is required"
    elif detail["input"] == "":
        reason = f"{option_name(field)} '': must not be empty"
    elif field:
        reason = f"{option_name(field)} {detail['input']}: {reason}"
    raise InvalidInput(reason)


@contextmanager
def making_sense_of(file: object, model: type[BaseModel] | None = None) -> Iterator[None]:
    """Raise InvalidInput with one line that names the file and the field, if it cannot be read or is no such ``model``."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None
    except ValidationError as error:
        raise InvalidInput(": ".join(filter(None, (str(file), *mistake(error, model))))) from None
    except ValueError as error:  # no TOML, no JSON, or no text
        raise InvalidInput(f"{file}: {error}") from None


def mistake(error: ValidationError, model: type[BaseModel] | None = None) -> tuple[str, str]:
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
    value = detail["input"]
    match detail["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            known = _fields(model, detail["loc"][:-1]) if model else []
            few = f"it takes {', '.join(known)}" if 0 < len(known) < 9 else ""
            return "; ".join(filter(None, ("unknown field", did_you_mean(str(detail["loc"][-1]), known) or few)))
        case "value_error" | "json_invalid":
            return _words(detail["msg"])
    shown = shown_text(value) if isinstance(value, str) and len(value) > SHOWN else repr(value)
    return _words(detail["msg"]) + ("" if isinstance(value, dict | list) else f", not {shown}")


def _fields(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    for part in place:
        if isinstance(part, str):
            model = next(_models(model.model_fields[part].annotation))
    return list(model.model_fields)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _words(message: str) -> str:
    """Pydantic's complaint in the words of files: not of tuples, and not of this program's classes."""
    message = re.sub(r"^\w+ should (?=be|have|match)", "must ", message.removeprefix("Value error, "))
    message = re.sub(r"a valid integer, unable to parse.*", "a whole number", message)
    message = re.sub(r"a valid number, unable to parse.*", "a number", message)
    message = re.sub(r"a valid (dictionary|object)( or instance of \w+)?", "a table", message)
    return re.sub(r"a valid (tuple|list)", "a list", message)
