"""What a user has chosen for all runs: a site, an account, a folder, and defaults of other options."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import InvalidInput
from harness.files import at_home


def folder() -> Path:
    """``$XDG_CONFIG_HOME/harness``, else ``~/.config/harness``: the user's config and site profiles."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    return (base if base.is_absolute() else Path("~/.config").expanduser()) / "harness"


def path() -> Path:
    return folder() / "config.toml"


def read() -> dict[str, Any]:
    """The values of the user's config by the names of options, with ``_`` for ``-``; none if there is no file.

    Values are bool, int, float, text or lists of these. Raises InvalidInput for what is no TOML or has tables.
    """
    try:
        values = tomllib.loads(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"{path()}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"{path()}: {error}") from None
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, bool | int | float | str):
                raise InvalidInput(f"{path()}: {name}: must be a value or a list of values, such as {name} = 8")
    return {name.replace("-", "_"): value for name, value in values.items()}


def expanded(text: str, named: str) -> Path:
    """``text`` as a path, with what its variables and ``~`` stand for.

    Raises InvalidInput, which begins with what the text is ``named``, for a variable that is not set.
    """
    path = os.path.expandvars(text)
    if unset := re.search(r"\$\{?\w+\}?", path):
        raise InvalidInput(f"{named} '{text}': {unset[0]} is not set here")
    return at_home(path)


def output(values: Mapping[str, object]) -> Path | None:
    """The folder for run directories in ``values``, None if there is none. Raises InvalidInput if a variable is not set."""
    return expanded(str(values["output"]), f"{path()}: output") if "output" in values else None
