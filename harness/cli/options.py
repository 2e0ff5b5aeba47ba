"""Options of the commands that measure: what to measure (read off the spec and off every backend), where, and how."""

import re
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Literal

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness import models
from harness.cli.values import PATH, TEXT, Given, completing
from harness.core import backend as backends
from harness.core import emulation, known_logs
from harness.core.spec import COMPOSED, DEVICES, EMULATED, MPI_LIBRARIES, RunSpec, variant_of
from harness.core.subject import TRAINING, Subject
from harness.core.validation import option_name
from harness.running.prepare import Place, place_of_runs
from harness.sites import site as sites

# Of the options under these headings help shows the USUAL ones. The others are as useful, but to fewer people.
WHAT, WHERE, HOW, OF_BACKENDS = "What to measure", "Where to run", "How to run", "Options of "
USUAL = {
    *("backend", "nodes", "model", "batch_size", "steps", "repeats", "data", "device", "devices_per_node", "transport"),
    *("site", "account", "time_limit", "no_wait", "output", "environment", "container", "tag", "dry_run", "as_json"),
    *("kernel", "bytes", "size", "preflight"),
}
_ARGUMENTS = "harness.arguments"  # what a command's context keeps


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings (``option.group``, a name set by ``grouped``).

    ``--help`` leaves out rare ones, unless they are of a backend that the command line names, and shortens the others.
    ``--help-all`` shows everything.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Help, which comes before other options, looks into it for the backends."""
        ctx.meta[_ARGUMENTS] = [*args]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, with --help-all before --help."""
        *parameters, last = super().get_params(ctx)
        if not any(map(_rare, parameters)):
            return [*parameters, last]
        explained = f"Show all {len(parameters)} options. With --backend NAME, --help shows those of NAME."
        every = click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, help=explained)
        every.callback = self._help_all
        return [*parameters, every, last]

    def _help_all(self, ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
        if given:
            ctx.meta[_ARGUMENTS] = None
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group, in the order in which the groups first appear."""
        groups: dict[str, list[tuple[str, str]]] = {}
        arguments, parameters = ctx.meta.get(_ARGUMENTS), self.get_params(ctx)
        shortened = arguments is not None and any(map(_rare, parameters))
        words = {word.replace("-", "_") for argument in arguments or () for word in re.split("[=,:]", argument)}
        options = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
        for parameter in sorted(options, key=lambda each: not hasattr(each, "group")):
            group = getattr(parameter, "group", "Other")
            of_named = words.intersection(group.removeprefix(OF_BACKENDS).split(", "))
            if (of_named or not shortened or not _rare(parameter)) and (record := parameter.get_help_record(ctx)):
                names, explained = record
                groups.setdefault(group, []).append((names, _shortened(explained) if shortened else explained))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=24 if shortened else 30)


def _rare(parameter: click.Parameter) -> bool:
    group = getattr(parameter, "group", "")
    return (group in (WHAT, WHERE, HOW) or group.startswith(OF_BACKENDS)) and parameter.name not in USUAL


def _shortened(explained: str) -> str:
    """The text of an option up to its first semicolon, with its default."""
    text, default, value = explained.partition("  [default: ")
    return text.partition("; ")[0] + default + value.partition("; ")[0].removesuffix("]") + ("]" if default else "")


def grouped(group: str, *options: click.Option) -> list[click.Option]:
    """Put ``options`` under the heading ``group``."""
    for option in options:
        option.group = group  # type: ignore[attr-defined]
    return list(options)


def option(names: str, explained: str, metavar: str | None = None, kind: Any = TEXT, **more: Any) -> click.Option:
    return click.Option(names.split(), help=explained, metavar=metavar, type=kind, **more)


def several(names: str, explained: str, metavar: str = "OPTION") -> click.Option:
    return option(names, f"{explained}; may be given several times", metavar, str, multiple=True)


def number(names: str, explained: str) -> click.Option:
    return option(names, explained, "NUMBER", int)


def flag(names: str, explained: str) -> click.Option:
    return click.Option(names.split(), is_flag=True, help=explained)


def _of_backends(choices: Callable[[backends.Backend], Iterable[str]]) -> Callable[[], list[str]]:
    return lambda: sorted({choice for backend in backends.working() for choice in choices(backend)})


# Values for a shell to complete, of fields that are no choice of a few.
COMPLETED: dict[str, Callable[[], list[str]]] = {
    "backend": backends.names,
    "model": models.names,
    "device": lambda: [*DEVICES[:-1], *(EMULATED + name for name in emulation.known())],
    "framework": _of_backends(lambda backend: backend.frameworks),
    "mpi": lambda: list(MPI_LIBRARIES),
    "log": known_logs.names,
    "transport": _of_backends(lambda backend: (*backend.transports, *backend.cuda_transports)),
}

# The metavars of fields that are not only a choice of a few.
WRITTEN = {"device": "|".join(DEVICES), "mpi": "|".join(MPI_LIBRARIES), "window": "SIZE", "log": "PROGRAM"}

SHORT = {"nodes": "-n"}

WHERE_TO_RUN = grouped(
    WHERE,
    option(
        "--site",
        "cluster to run on, SYSTEM or SYSTEM:PARTITION; see `harness list sites`; local is this machine  "
        "[default: `harness config` says; $HARNESS_SITE, your config's, this cluster, or local]",
        "NAME|FILE",
        shell_complete=completing(sites.names),
    ),
    option("--environ", "one of the site's environments  [default: the first]", "NAME"),
    several("-J --job-option job_options", "option for the scheduler, such as reservation=maintenance"),
    option("--account", "project that pays; short for -J account=NAME", "NAME"),
    option("--time-limit", "of the job  [default: the sum of its repeats' --timeout, at most the site's]", "1h30m"),
    number("--jobs", "share the repeats out among so many jobs, as what is claimed counts jobs  [default: 1]"),
    option("--hosts", "host file, for sites that are reached with ssh", "FILE", PATH),
    flag("--no-wait", "submit and return; see `harness jobs status` and `harness jobs collect`"),
    flag("--no-submit", "write the run directory and the job script only, to submit it by hand"),
)
HOW_TO_RUN = grouped(
    HOW,
    option("--output", "folder for run directories  [default: runs]", "DIR", PATH),
    option("--env environment", "Python environment to use instead of the built one", "PATH", PATH),
    option("--container", "image to run in, such as apptainer:FILE.sif; see docs/containers.md", "TYPE:IMAGE", str),
    several("--mount mounts", "folder to see in the image", "DIR[:DIR]"),
    several("--container-option container_options", "option for what opens the image"),
    option("--tag", "a name for the records; to select them by, as in `harness table 'runs/ @ tag=NAME'`", "NAME"),
    number("--port", "first port to listen on  [default: free ports are found]"),
    flag("--force", "run on this machine even if it has too few cores or too little memory"),
    flag("--dry-run", "show the plan, run nothing; processes with their hosts, roles, commands and environment"),
    flag("--json as_json", "print JSON for scripts"),
    flag("--quiet", "no progress"),
)


def place_of(given: Given, studys_site: str | None = None) -> Place:
    """The place that the options ``WHERE_TO_RUN`` and ``HOW_TO_RUN`` describe; a command may have only some of them.

    A site that was neither typed nor the study's is named on stderr. Raises InvalidInput.
    """
    report = (lambda line: None) if given.get("quiet") else partial(click.echo, err=True)
    place = {field.name: given[field.name] for field in fields(Place) if field.name in given}
    return place_of_runs(place.pop("site"), studys_site, report, **place)


def spec_options(
    leave_out: Iterable[str] = (),
    defaults: Mapping[str, object] | None = None,
    having: Callable[[backends.Backend], object] = bool,
    emulated: bool = True,
) -> list[click.Option]:
    """One option per field of RunSpec, then those of backends, each under the names of the backends ``having`` it.

    ``defaults`` are those of a command that has others than RunSpec. ``emulated`` says whether it takes such devices.
    """
    left_out = {*leave_out, *COMPOSED}
    infos = {name: info for name, info in RunSpec.model_fields.items() if name not in left_out}
    for name, value in (defaults or {}).items():
        infos[name] = FieldInfo.merge_field_infos(infos[name], default=value)
    options = [_field_option(name, {"": info}) for name, info in infos.items()]
    if not emulated:
        explained, choice = "where to compute; auto: the GPUs if there are any  [default: auto]", DEVICES[:-1]
        device = option("--device", explained, "|".join(choice), str, shell_complete=completing(lambda: choice))
        options[list(infos).index("device")] = device
    options = grouped(WHAT, *options)
    for name, owners in backends.option_owners().items():
        models = {owner: backends.backend(owner) for owner in owners}
        by_owner = {owner: each.options.model_fields[name] for owner, each in models.items() if having(each)}
        if by_owner and name not in left_out:
            options += grouped(OF_BACKENDS + ", ".join(by_owner), _field_option(name, by_owner))
    return options


def field_options(
    model: type[BaseModel], written: Mapping[str, tuple[str, click.ParamType[Any]]]
) -> list[click.Option]:
    """One option per field of a model; ``written`` are the metavars and types of those written in a way of their own."""
    return [_field_option(name, {"": info}, written.get(name)) for name, info in model.model_fields.items()]


def specs_of(given: Given, place: Place, subject: Subject = TRAINING, /, **usual: Any) -> list[RunSpec]:
    """The specs of what a command measures at a place; ``usual`` fields are the command's. Raises InvalidInput."""
    return subject.specs(given, place.device(given["device"]), **subject.protocol | usual)


def spec_of(given: Given, /, **usual: Any) -> RunSpec:
    """The spec of a training, wherever it is; ``usual`` fields are the command's. Raises InvalidInput."""
    return TRAINING.spec(given, variant_of(given["device"]), **usual)


def _field_option(
    name: str, infos: Mapping[str, FieldInfo], written: tuple[str, click.ParamType[object]] | None = None
) -> click.Option:
    """A field as an option. Values stay text unless ``written``: the spec parses and checks them, and words the complaints.

    ``infos`` has the field by the backend whose option it is (defaults may differ), or by "" for a field of no backend.
    """
    info = next(iter(infos.values()))
    explained, names = info.description or "", f"{SHORT.get(name, '')} {option_name(name)} {name}".strip()
    if info.annotation is bool:
        return click.Option(names.split(), is_flag=True, default=None, help=explained)
    if not info.is_required() and info.default_factory is None and info.default is not None:
        owners: dict[str, list[str]] = defaultdict(list)
        for owner, field in infos.items():
            owners[f"{field.default:g}" if isinstance(field.default, float) else str(field.default)].append(owner)
        defaults = [value + (f" ({', '.join(owners[value])})" if len(owners) > 1 else "") for value in owners]
        explained += f"  [default: {' or '.join(defaults)}]"
    kind = info.annotation
    choice: tuple[str, ...] = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    usual = "|".join(choice) or ("NUMBER" if "int" in str(kind) or "float" in str(kind) else "TEXT")
    metavar, parser = written or (WRITTEN.get(name, usual), str)
    choices = COMPLETED.get(name, partial(list, choice))
    return option(names, explained, metavar, parser, shell_complete=completing(choices))
