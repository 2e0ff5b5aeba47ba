"""The folders beside the package that belong to it: they are reached by links, which some ways of copying lose."""

from pathlib import Path

from harness.errors import HarnessError

ROOT = Path(__file__).parents[1]
PARTS = ("backends", "models", "kernels", "jobs", "programs", "reference", "studies")


def part(name: str) -> Path:
    """The folder of one of ``PARTS``. Raises HarnessError if it is missing or empty."""
    folder = ROOT / name
    if not folder.is_dir() or next(folder.iterdir(), None) is None:
        raise HarnessError(
            f"{folder} is missing: this copy of harness was made without its links (a zip, or rsync without -l); "
            "use git clone, or rsync -l"
        )
    return folder
