"""Options of the commands that measure: what (read off the spec and off every backend), where, and how."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.cli.common import not_empty, path_option
from harness.core import backend as backends
from harness.core.plan import LAST_PORT
from harness.core.spec import RunSpec
from harness.core.validation import option_name
from harness.errors import InvalidInput
from harness.running.prepare import Place


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


def text_option(names: str, metavar: str, help_text: str, callback: Callable[..., Any] = not_empty) -> click.Option:
    return click.Option(names.split(), metavar=metavar, callback=callback, help=help_text)


def flag(names: str, help_text: str) -> click.Option:
    return click.Option(names.split(), is_flag=True, help=help_text)


def site_options() -> list[click.Option]:
    """Where to run: options of every command that measures."""
    options = [
        text_option(
            "--site",
            "NAME|FILE",
            "cluster to run on, as SYSTEM or SYSTEM:PARTITION; see `harness list sites`  [default: this machine]",
        ),
        text_option("--environ", "NAME", "one of the site's environments  [default: the first]"),
        click.Option(
            ["-J", "--job-option", "job_options"],
            metavar="OPTION",
            multiple=True,
            help="option for the scheduler, such as reservation=maintenance; may be given several times",
        ),
        text_option("--account", "NAME", "project that pays; short for -J account=NAME"),
        text_option(
            "--time-limit",
            "1h30m",
            "of the job  [default: the sum of its repeats' --timeout, at most the site's]",
        ),
        text_option("--hosts", "FILE", "host file, for sites that are reached with ssh", path_option),
        flag("--no-wait", "submit and return; see `harness status` and `harness collect`"),
        flag("--no-submit", "write the run directory and the job script only, to submit it by hand"),
    ]
    return grouped(options, "Where to run")


def run_options() -> list[click.Option]:
    """How to run: options of every command that measures."""
    options = [
        text_option("--output", "DIR", "folder for run directories  [default: runs]", path_option),
        text_option("--env environment", "PATH", "Python environment to use instead of the built one", path_option),
        click.Option(
            ["--port"],
            type=click.IntRange(1, LAST_PORT),
            metavar="NUMBER",
            help="first port to listen on  [default: free ports are found]",
        ),
        flag("--dry-run", "show every process with its host, role, command and environment"),
        flag("--json as_json", "print JSON for scripts"),
        flag("--quiet", "no progress"),
    ]
    return grouped(options, "How to run")


def place_of(given: Mapping[str, Any]) -> Place:
    """What ``site_options`` and ``run_options`` say about the place; a command may have some of them only."""
    return Place(**{field.name: given[field.name] for field in fields(Place) if field.name in given})


def spec_options(
    leave_out: frozenset[str] = frozenset(), defaults: Mapping[str, Any] | None = None
) -> list[click.Option]:
    """One option per field of RunSpec, then those of the backends, each naming the backends that have it.

    ``defaults`` are those of a command that has others than RunSpec.
    """
    own = {name: info for name, info in RunSpec.model_fields.items() if name not in leave_out | {"options", "training"}}
    for name, value in (defaults or {}).items():
        own[name] = FieldInfo.merge_field_infos(own[name], default=value)
    options = grouped([_option(name, info) for name, info in own.items()], "What to measure")
    owners = backends.option_owners()
    for name, owning in owners.items():
        having = {owner: backends.backend(owner).options.model_fields[name] for owner in owning}
        options += grouped([_option(name, *having.values())], "Options of " + ", ".join(owning))
    return options


def field_options(model: type[BaseModel], metavars: Mapping[str, str]) -> list[click.Option]:
    """One option per field of a model; ``metavars`` are for those that are written in a way of their own."""
    return [_option(name, info, metavar=metavars.get(name)) for name, info in model.model_fields.items()]


def spec_of(given: Mapping[str, Any], **more: Any) -> RunSpec:
    """The spec of a run of one backend; ``more`` fields are the command's. Raises InvalidInput."""
    if given["backend"] is None:
        raise InvalidInput("--backend is required; see `harness list backends`")
    return backends.spec_for(given["backend"], given, **more)


def _option(name: str, info: FieldInfo, *alike: FieldInfo, metavar: str | None = None) -> click.Option:
    """A field as an option. Values stay text: the spec parses and checks them, and words the complaints.

    ``alike`` are the fields of that name of other backends, whose defaults may be others.
    """
    help_text = info.description or ""
    if info.annotation is bool:
        return click.Option([option_name(name), name], is_flag=True, default=None, help=help_text)
    if not info.is_required() and info.default_factory is None and info.default is not None:
        values = [field.default for field in (info, *alike)]
        defaults = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        help_text += f"  [default: {' or '.join(dict.fromkeys(defaults))}]"
    return click.Option([option_name(name), name], metavar=metavar or _metavar(info.annotation), help=help_text)


def _metavar(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "|".join(typing.get_args(annotation))
    text = str(annotation)
    return "NUMBER" if "int" in text or "float" in text else "TEXT"
