"""The commands. Thin: each one reads its options, calls one function, prints what it returns.

One module for each kind of command, loaded when the command is called; ``common`` holds what they share.
"""

import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from harness import __version__
from harness.core.parts import PARTS, part
from harness.core.progress import CLEAR_LINE
from harness.errors import HarnessError, Interrupted, InvalidInput


def main() -> NoReturn:
    """Entry point of ``harness``: an error becomes a message on stderr and an exit code."""
    # Looking for garbage after every 700 new objects takes a tenth of a short command's time, and finds nothing.
    gc.set_threshold(50_000, 20, 100)
    try:
        for name in PARTS:
            part(name)
        code = cli.main(prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        code = error.exit_code
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError):  # so that Python's own flush at exit cannot fail as well
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        message, code = complaint(error)
        if message:
            clear = CLEAR_LINE if sys.stderr.isatty() else ""  # of the progress that the error cut short
            print(f"{clear}harness: {message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def complaint(error: BaseException) -> tuple[str, int]:
    """The message for an error and the exit code (2: the request, 1: the run); a defect of harness is raised again."""
    match error:
        case click.ClickException():
            context = error.ctx if isinstance(error, click.UsageError) else None
            command = context.command_path if context else "harness"
            return f"{error.format_message()} (see `{command} --help`)".replace("\n", " "), 2
        case InvalidInput():  # one line, whatever the values that it quotes hold
            return str(error).replace("\n", " "), error.exit_code
        case HarnessError():
            return str(error), error.exit_code
        case KeyboardInterrupt() | click.Abort():
            return "interrupted; no process is left running", Interrupted.exit_code
        case BrokenPipeError():
            return "", 1  # whoever read the output has gone and wants to hear nothing more
        case OSError():
            return f"{error.filename or 'cannot write the output'}: {error.strerror}", 1
    raise error


# By what they are for: where each command is (a module of this package, and what the command is called in it), and what
# it does, for `harness --help`.
COMMANDS = {
    "Measure": {
        "run": ("runs.run", "Measure one backend: img/s with its confidence interval"),
        "compare-backends": ("runs.compare_backends", "Measure several backends at several sizes, in turn"),
        "train": ("runs.train", "Train to an accuracy, and print the time that took"),
        "study": ("studies.study", "Measure the matrix of runs that a file describes"),
    },
    "Runs on a cluster": {
        "status": ("runs.status", "Show how far runs on a cluster are"),
        "collect": ("runs.collect", "Make the records of runs whose jobs have ended"),
        "cancel": ("runs.cancel", "Cancel the jobs of runs"),
    },
    "What results say": {
        "table": ("answers.table", "Print results as a table"),
        "verdict": ("answers.verdict", "Say whether MPI-based toolkits scale better than servers"),
        "report": ("answers.report", "Write results as one interactive page, or as figures"),
        "export": ("answers.export", "Write results for other tools"),
        "check": ("answers.check", "Verify records in full"),
    },
    "Comparing with before": {
        "compare": ("regressions.compare", "Say whether anything in NEW is slower than in OLD"),
        "baseline": ("regressions.baseline", "Keep measurements under a name, to compare later ones"),
        "history": ("regressions.history", "Find when the measurements of a long time changed"),
    },
    "Scaling model": {
        "predict": ("predictions.predict", "Predict img/s for numbers of nodes"),
        "fit": ("predictions.fit", "Fit the scaling model to results"),
        "explain": ("predictions.explain", "Say what limits a backend on so many nodes, and why"),
        "split": ("predictions.split", "Measure how a step divides into forward and backward"),
    },
    "What there is, and setting up": {
        "list": ("setting_up.list_", "List backends, models, environments, sites, references"),
        "site": ("setting_up.site", "Show, check and try site profiles"),
        "env": ("setting_up.env", "Build and check the backends' Python environments"),
        "data": ("datasets.data", "Make, convert, check and time data sets"),
    },
}
ALL = {name: entry for group in COMMANDS.values() for name, entry in group.items()}


class Commands(click.Group):
    """The commands. The module of one is loaded when it is called: that of `run` loads every backend for its options."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(ALL)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in ALL:
            return None
        module, attribute = ALL[name][0].split(".")
        command: click.Command = getattr(importlib.import_module(f"harness.cli.{module}"), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for, without loading them."""
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                width = max(map(len, ALL))
                formatter.write_dl([(name.ljust(width), short_help) for name, (_, short_help) in commands.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True},
)
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure and compare ways of distributing training on this machine or cluster."""
