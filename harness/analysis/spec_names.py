"""Short names for specs: enough to tell the specs of one table apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.text import plural

_ALWAYS = ("backend", "framework", "transport", "model", "nodes", "devices_per_node")


def spec_names(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A name for each spec: what it is, its parameter servers, and whatever else tells it from the others.

    A field that all specs have tells all of them apart, an option of one backend that backend's.
    """
    fields = {text: flat(spec) for text, spec in specs.items()}
    by_backend: dict[str, list[dict[str, Any]]] = {}
    for one in fields.values():
        by_backend.setdefault(one["backend"], []).append(one)
    own = {backend: _varying(alike) for backend, alike in by_backend.items()}
    of_all = _varying(list(fields.values())) & {name for spec in specs.values() for name in spec}
    told = {
        backend: [name for name in alike[0] if name not in _ALWAYS and name in own[backend] | of_all | {"ps"}]
        for backend, alike in by_backend.items()
    }
    found = {}
    for text, one in fields.items():
        nodes = plural(one["nodes"], "node") + (f" × {one['devices_per_node']}" if one["devices_per_node"] > 1 else "")
        main = [one["backend"], one["framework"], one["transport"], one["model"], nodes]
        others = [f"{name}={shown(one[name])}" for name in told[one["backend"]] if name in one]
        found[text] = " ".join([*(str(part) for part in main if part), *others])
    return found


def _varying(fields: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names that do not have the same value in all of ``fields``."""
    names = dict.fromkeys(name for one in fields for name in one)
    return {name for name in names if len({str(one.get(name)) for one in fields}) > 1}


def flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with the backend's own options beside its fields."""
    return {**{name: value for name, value in spec.items() if name != "options"}, **spec["options"]}


def shown(value: Any) -> str:
    return "none" if value is None else str(value)
