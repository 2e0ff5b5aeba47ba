"""Programs whose output is known: a file of data for each in ``programs/``, with a line that somebody has published."""

import tomllib
from typing import Any

from harness.core.parts import part
from harness.core.text import did_you_mean

ABOUT = {"title", "source", "line", "number"}  # what a file says besides fields of a program


def names() -> list[str]:
    return sorted(file.stem for file in part("programs").glob("*.toml"))


def read(name: str) -> dict[str, Any]:
    """All that the file says. Raises ValueError if there is none."""
    if name not in names():
        right = did_you_mean(name, names()) or f"must be one of {', '.join(names())}"
        raise ValueError(f"--log {name}: {right}")
    return tomllib.loads((part("programs") / f"{name}.toml").read_text(encoding="utf-8"))


def options(name: str) -> dict[str, Any]:
    """The fields of a program that say where its output has img/s, and in which unit. Raises ValueError."""
    return {field: value for field, value in read(name).items() if field not in ABOUT}
