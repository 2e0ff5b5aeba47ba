"""The tiny backend as harness's controller sees it: what it is called, what it can do, which processes it needs.

This module runs beside harness, so it may import harness and Pydantic, but nothing of the framework.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness.core.backend import Backend
from harness.core.spec import Options
from harness.environments import EnvironmentSpec, Variant

FOLDER = Path(__file__).parent


class TinyOptions(Options):
    """Each field is an option of the command line: this one is ``--steepness``."""

    steepness: float = Field(1.0, gt=0, description="of the bowl that is descended")


def _environment(framework: str, variant: Variant) -> EnvironmentSpec:
    """What `harness env build tiny` installs, and what must import there."""
    return EnvironmentSpec("tiny", variant, FOLDER / "requirements.txt", imports=("numpy",))


BACKEND = Backend(
    name="tiny",
    family="toolkit",
    frameworks=("numpy",),
    strategy="an example: gradients meet on worker 0, over plain sockets",
    folder=FOLDER,  # where trainer.py is
    transports=("tcp",),
    precisions=("fp32",),
    devices=("cpu",),  # it computes with NumPy
    options=TinyOptions,
    environment=_environment,
)
