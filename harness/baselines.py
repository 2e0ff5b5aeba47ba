"""Baselines: records that were put aside under a name, to be compared with later."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """``$HARNESS_BASELINES``, else ``$XDG_DATA_HOME/harness/baselines``, else ``~/.local/share/harness/baselines``."""
    if chosen := os.environ.get("HARNESS_BASELINES"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "harness" / "baselines"


def find(name: str) -> Path | None:
    """The folder of the baseline called ``name``, None if there is none."""
    saved = folder() / name
    return saved if name and Path(name).name == name and saved.is_dir() else None
