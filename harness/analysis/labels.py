"""Short names for specs: enough to tell the specs of one table apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALWAYS = ("backend", "framework", "transport", "model", "nodes", "devices_per_node")


def labels(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A name for each spec: what it is, its parameter servers, and whatever else tells it from the others."""
    fields = {text: flat(spec) for text, spec in specs.items()}
    of_all: dict[str, set[str]] = {}
    of_backend: dict[tuple[str, str], set[str]] = {}
    for one in fields.values():
        for name, value in one.items():
            of_all.setdefault(name, set()).add(str(value))
            of_backend.setdefault((one["backend"], name), set()).add(str(value))

    def tells_apart(backend: str, name: str) -> bool:
        # An option of one backend tells its own specs apart, a field of all specs all of them.
        return len(of_backend[backend, name]) > 1 or (name in _of_every_spec and len(of_all[name]) > 1)

    _of_every_spec = set.intersection(*({*spec} for spec in specs.values())) if specs else set()
    found = {}
    for text, one in fields.items():
        own = [
            f"{name}={shown(value)}"
            for name, value in one.items()
            if name not in _ALWAYS and (name == "ps" or tells_apart(one["backend"], name))
        ]
        nodes = count(one["nodes"], "node") + (f" × {one['devices_per_node']}" if one["devices_per_node"] > 1 else "")
        main = [one["backend"], one["framework"], one["transport"], one["model"], nodes]
        found[text] = " ".join([*(str(part) for part in main if part), *own])
    return found


def flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with the backend's own options beside its fields."""
    return {**{name: value for name, value in spec.items() if name != "options"}, **spec["options"]}


def shown(value: Any) -> str:
    """A value of a spec for people."""
    return "none" if value is None else str(value)


def count(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}{'s' * (number != 1)}"
