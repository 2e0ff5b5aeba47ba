"""The commands. Thin: each one reads its options, calls one function, prints what it returns.

One module for each kind of command; ``common`` holds what they share.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from harness import __version__
from harness.core.progress import CLEAR_LINE
from harness.errors import HarnessError, InvalidInput

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


def main() -> NoReturn:
    """Entry point of ``harness``: an error becomes a message on stderr and an exit code."""
    # Looking for garbage after every 700 new objects takes a tenth of a short command's time, and finds nothing.
    gc.set_threshold(50_000, 20, 100)
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError):
            _abandon_stdout()
        message, code = complaint(error)
        if message:
            clear = CLEAR_LINE if sys.stderr.isatty() else ""  # of the progress that the error cut short
            print(f"{clear}harness: {message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def complaint(error: BaseException) -> tuple[str, int]:
    """The message for an error and the exit code (2: the request, 1: the run); a defect of harness is raised again."""
    match error:
        case click.ClickException():
            return f"{_in_one_line(error.format_message())} (see `harness --help`)", 2
        case InvalidInput():
            return _in_one_line(str(error)), error.exit_code
        case HarnessError():
            return str(error), error.exit_code
        case KeyboardInterrupt() | click.Abort():
            return "interrupted; no process is left running", INTERRUPTED
        case BrokenPipeError():
            return "", 1  # whoever read the output has gone and wants to hear nothing more
        case OSError():
            return f"{error.filename or 'cannot write the output'}: {error.strerror}", 1
    raise error


def _in_one_line(message: str) -> str:
    """A complaint about a request is one line, whatever the values that it quotes hold."""
    return " ".join(message.split("\n"))


def _abandon_stdout() -> None:
    """Point stdout elsewhere, so that Python's own flush at exit cannot fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Where each command is: a module of this package, and what the command is called in it.
COMMANDS = {
    "run": "runs.run",
    "compare-backends": "runs.compare_backends",
    "train": "training.train",
    "status": "runs.status",
    "collect": "runs.collect",
    "cancel": "runs.cancel",
    "study": "studies.study",
    "report": "reports.report",
    "table": "answers.table",
    "verdict": "answers.verdict",
    "compare": "regressions.compare",
    "baseline": "regressions.baseline",
    "history": "regressions.history",
    "predict": "predictions.predict",
    "fit": "predictions.fit",
    "explain": "predictions.explain",
    "split": "predictions.split",
    "export": "exports.export_",
    "list": "show.list_",
    "site": "show.site_",
    "env": "provide.env",
    "data": "datasets.data",
}


class Commands(click.Group):
    """The commands. The module of one is loaded when it is called: that of `run` loads every backend for its options."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Their names, as ``--help`` lists them."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command called ``name``."""
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(".")
        command: click.Command = getattr(importlib.import_module(f"harness.cli.{module}"), attribute)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure and compare ways of distributing training on this machine or cluster."""
