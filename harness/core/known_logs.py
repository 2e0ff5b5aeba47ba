"""Programs whose output is known: a file of data for each in ``programs/``, with a line that somebody has published."""

import tomllib
from typing import Any

from harness.core.parts import part
from harness.core.text import did_you_mean

ABOUT = {"title", "source", "line", "number"}  # keys of a file that are no fields of a program


def names() -> list[str]:
    return sorted(file.stem for file in part("programs").glob("*.toml"))


def read(name: str) -> dict[str, Any]:
    """The contents of the file: where the output has img/s, and in which unit, and what it is ABOUT. Raises ValueError."""
    if name not in names():
        right = did_you_mean(name, names()) or f"must be one of {', '.join(names())}"
        raise ValueError(f"--log {name}: {right}")
    return tomllib.loads((part("programs") / f"{name}.toml").read_text(encoding="utf-8"))
