"""The version of this harness."""

import subprocess
from functools import cache
from pathlib import Path

from harness import __version__


@cache
def harness_version() -> dict[str, str | None]:
    """This package's version and, in a checkout, its commit (with ``+dirty`` when files differ from it)."""
    folder = Path(__file__).parent
    inside = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git(folder, "rev-parse", "HEAD") if inside else None
    dirty = "+dirty" if commit and _git(folder, "status", "--porcelain", "--untracked-files=no") else ""
    return {"version": __version__, "commit": commit and commit + dirty}


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git, or ``None`` when it is missing, fails or takes more than 10 s."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
