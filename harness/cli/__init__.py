"""The commands. Thin: each one reads its options, calls one function, prints what it returns.

One module for each kind of command; ``common`` holds what they share.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

import click

from harness import __version__
from harness.cli import answers, exports, provide, regressions, reports, runs, show, studies
from harness.cli.common import CLEAR_LINE
from harness.errors import HarnessError, InvalidInput

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


def main() -> NoReturn:
    """Entry point of ``harness``: errors become one line and an exit code (2: the request, 1: the run)."""
    # Looking for garbage after every 700 new objects takes a tenth of a short command's time, and finds nothing.
    gc.set_threshold(50_000, 20, 100)
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        code = _complain(f"{_in_one_line(error.format_message())} (see `harness --help`)", 2)
    except InvalidInput as error:
        code = _complain(_in_one_line(str(error)), error.exit_code)
    except HarnessError as error:
        code = _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted; no process is left running", INTERRUPTED)
    except BrokenPipeError:
        _abandon_stdout()  # its reader has gone and wants to hear nothing more
        code = 1
    except OSError as error:
        _abandon_stdout()
        code = _complain(f"{error.filename or 'cannot write the output'}: {error.strerror}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    clear = CLEAR_LINE if sys.stderr.isatty() else ""  # of the progress that the error cut short
    print(f"{clear}harness: {message}", file=sys.stderr)
    return code


def _in_one_line(message: str) -> str:
    """A complaint about a request is one line, whatever the values that it quotes hold."""
    return " ".join(message.split("\n"))


def _abandon_stdout() -> None:
    """Point stdout elsewhere, so that Python's own flush at exit cannot fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure and compare ways of distributing training on this machine or cluster."""


for command in (
    *(runs.run, runs.compare_backends, runs.status, runs.collect, runs.cancel),
    studies.study,
    *(reports.report, answers.table, answers.verdict),
    *(regressions.compare, regressions.baseline, regressions.history),
    exports.export_,
    *(show.list_, show.site_),
    *(provide.env, provide.data),
):
    cli.add_command(command)
