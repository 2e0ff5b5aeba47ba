"""The user's defaults for all runs: a site, an account and a folder."""

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from harness.core.spec import Frozen
from harness.core.validation import making_sense_of
from harness.errors import InvalidInput
from harness.files import at_home


def folder() -> Path:
    """``$XDG_CONFIG_HOME/harness``, else ``~/.config/harness``: the user's config and site profiles."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    return (base if base.is_absolute() else Path("~/.config").expanduser()) / "harness"


def path() -> Path:
    return folder() / "config.toml"


class Config(Frozen):
    """The user's config. Measurements are described by a command or a study's file, not here."""

    site: str | None = Field(default=None, min_length=1)
    account: str | None = Field(default=None, min_length=1)
    output: str | None = Field(default=None, min_length=1)

    @property
    def folder(self) -> Path | None:
        """The folder for run directories. Raises InvalidInput if a variable in its name is not set."""
        return expanded(self.output, f"{path()}: output") if self.output else None


def read() -> Config:
    """The user's config; an empty one if there is no file. Raises InvalidInput for what makes no sense."""
    with making_sense_of(path(), Config), suppress(FileNotFoundError):
        return Config.model_validate(tomllib.loads(path().read_text(encoding="utf-8")))
    return Config()


def expanded(text: str, named: str) -> Path:
    """``text`` as a path with variables and ``~`` expanded. Raises InvalidInput, begun with ``named``, for unset ones."""
    path = os.path.expandvars(text)
    if unset := re.search(r"\$\{?\w+\}?", path):
        raise InvalidInput(f"{named} '{text}': {unset[0]} is not set here")
    return at_home(path)
