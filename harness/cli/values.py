"""Values that people write in ways of their own, and options that many commands have."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from harness.core.written import share, understood

Given = Mapping[str, Any]  # the values of a command's options, by their names
Completions = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_NOW = "harness.now"  # what a command's context keeps


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Lets the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def completing(values: Callable[[], Iterable[str]]) -> Completions:
    """Completes the value, or the last one of a list, to one of ``values``, or else to a file. ``-`` counts as ``_``."""

    def completions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        begin = last.replace("-", "_")
        fitting = [value for value in values() if value.replace("-", "_").startswith(begin)]
        items = [CompletionItem(before + comma + value) for value in fitting]
        return items or files(context, parameter, incomplete)

    return completions


AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
QUIET = click.option("--quiet", is_flag=True, help="no progress")


class ParsedText(click.ParamType[object]):
    """A value that ``read`` understands. Its ValueError names what would be right."""

    name = "text"

    def __init__(self, read: Callable[[str], object]) -> None:
        self.read = read

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return files(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        assert param is not None
        return understood(f"{max(param.opts, key=len)} {value!r}", value, self.read)


def source(value: str) -> str:
    """A source of results, with absolute times for relative ones.

    A command has one "now": windows that meet leave no gap, and its output names the window that it had.
    """
    from harness.results.selection import at_time

    now = click.get_current_context().meta.setdefault(_NOW, datetime.now(UTC).replace(microsecond=0))
    return at_time(value, now)


SOURCE = ParsedText(source)


def text(value: str) -> str:
    """An empty text is a shell variable that was not set, not a wish for the default."""
    if not value:
        raise ValueError("must not be empty")
    return value


def parts(value: str, example: str) -> list[str]:
    if listed := [part.strip() for part in value.split(",") if part.strip()]:
        return listed
    raise ValueError(f"must be a list such as {example}")


TEXT, PATH = ParsedText(text), ParsedText(lambda value: Path(text(value)))
ANY_PATH = click.Path(path_type=Path)
SHARE = ParsedText(share)
HOSTS = click.option("--hosts", type=PATH, metavar="FILE", help="host file of the machines to copy to")
SITE = click.option("--site", type=TEXT, metavar="NAME", default="ec2", help="site whose options ssh gets for --hosts")
