"""Results that commands load: the argument, the progress, and the records that are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from harness.cli.values import SOURCE, files
from harness.core.progress import CountLine
from harness.core.text import plural

if TYPE_CHECKING:
    from harness.results.result import Result
    from harness.results.selection import Selected

_LEFT_OUT = "harness.left_out"  # what a command's context keeps
_MOST_NAMED = 3  # records that were left out

RESULTS = click.argument("sources", nargs=-1, required=True, metavar="RESULTS...", type=SOURCE, shell_complete=files)


def leave_out() -> Callable[[str], None]:
    """The function that ``results.load`` calls with each record that cannot be read. One line names them at the end."""
    context = click.get_current_context()
    if _LEFT_OUT not in context.meta:
        context.meta[_LEFT_OUT] = list[str]()
        context.call_on_close(lambda: _tell_left_out(left_out(context)))
    note: Callable[[str], None] = context.meta[_LEFT_OUT].append
    return note


def left_out(context: click.Context) -> list[str]:
    """The records that ``leave_out`` was called with in this command so far, each with its reason."""
    reasons: list[str] = context.meta.get(_LEFT_OUT, [])
    return list(dict.fromkeys(reason.replace("\n", " ") for reason in reasons))  # a command may load twice


def _tell_left_out(different: list[str]) -> None:
    if different:
        verb = "was" if len(different) == 1 else "were"
        named = "; ".join([*different[:_MOST_NAMED], *(["…"] if len(different) > _MOST_NAMED else [])])
        click.echo(f"{plural(len(different), 'record')} {verb} left out: {named}", err=True)


def any_of(
    sources: Sequence[str], selected: Selected | None = None, training: bool = False, with_accuracies: bool = False
) -> list[Result]:
    """The results of ``sources``, as ``load`` says. Raises InvalidInput if there are none, or no ``training``.

    What is read of several times with the same ``selected`` is read once, and may be nothing.
    """
    from harness.results.sources import check_any, load

    results = load(sources, CountLine("records").count, leave_out(), selected, with_accuracies, leave_out())
    if selected is None:
        check_any(results, sources, training)
    return results


def some_of(sources: Sequence[str]) -> list[Result]:
    """The trainings of ``sources``, of any status. Raises InvalidInput if there are none."""
    from harness.results.sources import trainings

    return trainings(any_of(sources, training=True))
