"""The user's own defaults in commands that measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.core.text import did_you_mean
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.sites import config as file
from harness.sites.file import WITH_HOSTS

if TYPE_CHECKING:
    from harness.sites.site import Site

Given = Mapping[str, Any]  # the values of a command's options, by their names

# Options that are for one command, never for all. What --mpi says most runs have no use for, and refuse.
ONCE = ("dry_run", "as_json", "force", "no_wait", "no_submit", "everything", "a", "b", "of", "kernel", "mpi")
FOR_JOBS = ("account", "job_options", "time_limit", "jobs")
# Options of commands that measure, by their names in the config: what each command adds when its module is loaded.
OPTIONS: dict[str, click.Option] = {}


def add_options(parameters: Iterable[click.Parameter]) -> None:
    """Let the config have the options of a command that measures, besides those that are for one command only."""
    for option in parameters:
        if isinstance(option, click.Option) and option.name not in ONCE:
            OPTIONS.setdefault(max(option.opts, key=len).removeprefix("--").replace("-", "_"), option)


def defaults(parameters: Iterable[click.Parameter]) -> dict[str, Any]:
    """The values of the user's config by the names of ``parameters``, for those that are among them.

    Raises InvalidInput for a wrong value, and for a name that no command that measures has.
    """
    chosen = {}
    for name, value in file.read().items():
        if name not in OPTIONS:
            known = "it takes what `harness run --help` lists, such as batch-size, and nothing that is for one run only"
            raise InvalidInput(f"{file.path()}: unknown option '{name}'; {did_you_mean(name, OPTIONS) or known}")
        chosen[OPTIONS[name].name] = _checked(name, value, OPTIONS[name])
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in chosen.items() if name in names and name is not None}


def _checked(name: str, value: object, option: click.Option) -> object:
    """``value`` as a command line would have it, if the command that it is for would take it."""
    if option.is_flag != isinstance(value, bool):
        right = "must be true or false" if option.is_flag else "must be a value, not true or false"
        raise InvalidInput(f"{file.path()}: {name}: {right}")
    if option.is_flag:
        return value
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    if option.name == "output":
        texts = [str(file.output({"output": value}))]
    written: object = texts if option.multiple else ",".join(texts)
    try:
        if not isinstance(option.type, click.Path):  # which need not be there yet
            option.type_cast_value(click.Context(click.Command("config")), written)
        if option.type is click.STRING:  # any other has checked it
            _check_field(str(option.name), written)
    except click.ClickException as error:
        raise InvalidInput(f"{file.path()}: {name}: {error.message}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{file.path()}: {error}") from None
    return written


def _check_field(name: str, value: object) -> None:
    """Raise InvalidInput if ``name`` is a field of a spec or of backends' options and ``value`` is none for it."""
    if name in RunSpec.model_fields:
        checked(RunSpec, {"backend": backends.names()[0], name: value})
    refusals = []
    owners = backends.option_owners().get(name, [])
    for owner in owners:
        try:
            checked(backends.backend(owner).options, {name: value})
        except InvalidInput as error:
            refusals.append(error)
    if owners and len(refusals) == len(owners):
        raise refusals[0]


def without_misplaced(given: Given, site: Site | None) -> dict[str, Any]:
    """``given`` less those options of the config that say nothing about ``site`` (None: this machine)."""
    misplaced = {"environ", "hosts", *FOR_JOBS}
    if site:
        jobs, hosts = FOR_JOBS if site.queued else (), ["hosts"] if site.scheduler in WITH_HOSTS else []
        misplaced -= {"environ", *jobs, *hosts}
    nothing: dict[str, object] = {"job_options": ()}
    return {
        name: nothing.get(name) if name in misplaced and of_config(name) else value for name, value in given.items()
    }


def names_of_config(given: Iterable[str]) -> set[str]:
    """The options among those ``given`` whose values are from the config."""
    return {name for name in given if of_config(name)}


def of_config(name: str) -> bool:
    """The option ``name`` of the command that is under way has its value from the config."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
