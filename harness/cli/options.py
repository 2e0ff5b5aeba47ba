"""The command line of a RunSpec: options are read off the spec and off every backend, so that each is written once."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.core.validation import option_name
from harness.errors import InvalidInput


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings (``option.group``, a name set by ``grouped``)."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group, in the order in which the groups first appear."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def grouped(options: Iterable[click.Option], group: str) -> list[click.Option]:
    """Put ``options`` under the heading ``group``."""
    chosen = list(options)
    for option in chosen:
        option.group = group  # type: ignore[attr-defined]
    return chosen


def spec_options(
    leave_out: frozenset[str] = frozenset(), defaults: Mapping[str, Any] | None = None
) -> list[click.Option]:
    """One option per field of RunSpec, then those of the backends, each naming the backends that have it.

    ``defaults`` are those of a command that has others than RunSpec.
    """
    fields = {
        name: info for name, info in RunSpec.model_fields.items() if name not in leave_out | {"options", "training"}
    }
    for name, value in (defaults or {}).items():
        fields[name] = FieldInfo.merge_field_infos(fields[name], default=value)
    options = grouped([_option(name, info) for name, info in fields.items()], "What to measure")
    owners = backends.option_owners()
    for name, owning in owners.items():
        having = {owner: backends.backend(owner).options.model_fields[name] for owner in owning}
        options += grouped([_option(name, *having.values())], "Options of " + ", ".join(owning))
    return options


def field_options(model: type[BaseModel], metavars: Mapping[str, str]) -> list[click.Option]:
    """One option per field of a model; ``metavars`` are for those that are written in a way of their own."""
    return [_option(name, info, metavar=metavars.get(name)) for name, info in model.model_fields.items()]


def spec_fields(given: dict[str, Any], for_backends: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split what was given on the command line into the fields of RunSpec and each backend's own options.

    Raises InvalidInput for an option that none of ``for_backends`` has.
    """
    owners = backends.option_owners()
    chosen = {name.replace("-", "_") for name in for_backends}
    fields = {name: value for name, value in given.items() if name in RunSpec.model_fields and value is not None}
    own: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for name, value in given.items():
        if name not in owners or value is None:
            continue
        having = chosen & set(owners[name])
        if not having:
            raise InvalidInput(
                f"{option_name(name)} is an option of {', '.join(owners[name])}, not of {', '.join(sorted(chosen))}"
            )
        for backend in having:
            own[backend][name] = value
    return fields, own


def _option(name: str, info: FieldInfo, *alike: FieldInfo, metavar: str | None = None) -> click.Option:
    """A field as an option. Values stay text: the spec parses and checks them, and words the complaints.

    ``alike`` are the fields of that name of other backends, whose defaults may be others.
    """
    help_text = info.description or ""
    if info.annotation is bool:
        return click.Option([option_name(name), name], is_flag=True, default=None, help=help_text)
    if not info.is_required() and info.default_factory is None and info.default is not None:
        defaults = [
            f"{one.default:g}" if isinstance(one.default, float) else str(one.default) for one in (info, *alike)
        ]
        help_text += f"  [default: {' or '.join(dict.fromkeys(defaults))}]"
    return click.Option([option_name(name), name], metavar=metavar or _metavar(info.annotation), help=help_text)


def _metavar(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "|".join(typing.get_args(annotation))
    text = str(annotation)
    return "NUMBER" if "int" in text or "float" in text else "TEXT"
