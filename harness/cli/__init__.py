"""The commands. Thin: each one reads its options, calls one function, prints what it returns.

One module for each kind of command is loaded when a command is called.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from harness import __version__
from harness.core.parts import PARTS, part
from harness.core.progress import CLEAR_LINE
from harness.core.text import did_you_mean, listed
from harness.errors import HarnessError, Interrupted, InvalidInput

NO_COLOR = bool(os.environ.get("NO_COLOR"))  # https://no-color.org


def main() -> NoReturn:
    """Entry point of ``harness``: an error becomes a message on stderr and an exit code."""
    _replace_closed_streams()
    # Looking for garbage after every 700 new objects takes a tenth of a short command's time, and finds nothing.
    gc.set_threshold(50_000, 20, 100)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the terminal's encoding has no character for is no error
    try:
        _check_folder()
        for name in PARTS:
            part(name)
        code = cli.main(prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        assert error.ctx
        click.echo(error.ctx.get_help(), color=error.ctx.color)
        code = 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError):  # so that Python's own flush at exit cannot fail as well
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        message, code = complaint(error, sys.argv[1:])
        if message:
            clear = CLEAR_LINE if sys.stderr.isatty() else ""  # of the progress that the error cut short
            name = "harness:" if NO_COLOR or not clear else click.style("harness:", fg="red", bold=True)
            print(f"{clear}{name} {message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _check_folder() -> None:
    """Raises InvalidInput if the working folder is gone."""
    try:
        Path.cwd()
    except OSError as error:
        raise InvalidInput(f"the working folder cannot be used: {error.strerror}; change to another one") from None


def _replace_closed_streams() -> None:
    """Replace the streams that the caller has closed (``>&-``). Python has none then, and the next file that is opened
    would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def complaint(error: BaseException, arguments: Sequence[str]) -> tuple[str, int]:
    """The message for an error and the exit code (2: the request, 1: the run); a defect of harness is raised again.

    ``arguments`` are those of the command line: the message names the help of their command.
    """
    match error:
        case click.ClickException():
            return f"{error.format_message()} (see `{command_path(arguments)} --help`)".replace("\n", " "), 2
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


def command_path(arguments: Sequence[str]) -> str:
    """``harness study run`` of the arguments of a command line. Click does not say it of every mistake."""
    path, context = ["harness"], click.Context(cli)
    command: click.Command = cli
    for name in arguments:
        if not isinstance(command, click.Group) or not (next_command := command.get_command(context, name)):
            break
        path.append(name)
        command = next_command
    return " ".join(path)


# By purpose: the place of each command (a module of this package, and the command's name in it), and its summary for
# `harness --help`.
COMMANDS = {
    "Measure": {
        "run": ("runs.run", "Measure backends: img/s with its confidence interval"),
        "ab": ("ab.ab", "Say which of two sides is faster, in turn on the same nodes"),
        "kernel": ("kernels.kernel", "Measure what a transport does by itself, or compare all of them"),
        "study": ("studies.study", "Measure the matrix of runs that a file describes"),
        "train": ("runs.train", "Train to an accuracy, and print the time that took"),
        "launch": ("runs.launch", "Start your own distributed program as ours are started"),
        "jobs": ("runs.jobs", "Show how far runs are, collect their records, or cancel them"),
    },
    "Answer": {
        "table": ("answers.table", "Print results as a table"),
        "best": ("answers.best", "Say who is fastest and who scales best, toolkits or servers"),
        "report": ("answers.report", "Write results as one interactive page, or as figures"),
        "compare": ("regressions.compare", "Say whether anything in NEW is slower than in OLD"),
        "baseline": ("regressions.baseline", "Keep measurements under a name, to judge later ones by"),
        "history": ("regressions.history", "Find when the measurements of a long time changed"),
        "results": ("answers.results", "Export results, import those of MLPerf, or verify records"),
    },
    "Predict": {
        "model": ("predictions.model", "Predict and explain img/s with the scaling model, or fit it"),
    },
    "Set up": {
        "list": ("listing.list_", "List backends, models, kernels, environments, sites, references"),
        "env": ("setting_up.env", "Build and check the backends' Python environments"),
        "site": ("setting_up.site", "Make, show and check site profiles"),
        "config": ("setting_up.config_", "Show and check your own defaults, and where runs take place"),
        "data": ("datasets.data", "Make a small data set, or copy one to other machines"),
    },
}
ALL = {name: entry for group in COMMANDS.values() for name, entry in group.items()}


class Commands(click.Group):
    """The commands. The module of one is loaded when it is called: that of `run` loads every backend for its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. ``help`` and ``version`` are understood without their dashes."""
        match args:
            case ["help", *command]:
                args = [*command, "--help"]
            case ["version"]:
                args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(ALL)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in ALL:
            return None
        module, attribute = ALL[name][0].split(".")
        command: click.Command = getattr(importlib.import_module(f"harness.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with. For one that does not exist the nearest that does is named."""
        name = args[0]
        if name not in ALL and not name.startswith("-"):
            groups = ((each, self.get_command(context, each)) for each in ALL)
            within = [f"{each} {name}" for each, of in groups if isinstance(of, click.Group) and name in of.commands]
            meant = f"did you mean {listed(within, 'or')}?" if within else did_you_mean(name, ALL)
            raise click.UsageError(f"there is no command {name!r}{meant and f'; {meant}'}", context)
        return super().resolve_command(context, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without loading them."""
        return [
            CompletionItem(name, help=short_help)
            for name, (_, short_help) in ALL.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for, without loading them."""
        for heading, commands in COMMANDS.items():
            with formatter.section(click.style(heading, bold=True)):
                width = max(map(len, ALL))
                formatter.write_dl([(name.ljust(width), short_help) for name, (_, short_help) in commands.items()])


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
        "color": False if NO_COLOR else None,  # None: on a terminal only
    },
)
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure and compare ways of distributing training on this machine or cluster."""
