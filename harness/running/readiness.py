"""Which backends can run on this machine, and what each lacks."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core import backend as backends
from harness.core.backend import Backend
from harness.environments import EnvironmentSpec
from harness.environments.pythons import lacking
from harness.errors import InvalidInput
from harness.launch.local import local_gpus


@dataclass(frozen=True)
class Readiness:
    """A backend on one of its frameworks and one kind of device. It runs here when nothing is in ``lacks``."""

    backend: str
    strategy: str
    framework: str
    device: str
    transports: tuple[str, ...]
    lacks: tuple[str, ...]


def survey() -> list[Readiness]:
    """Every backend, also those of other packages that do not load."""
    found = []
    for name in backends.names():
        try:
            found += _of(backends.backend(name))
        except InvalidInput as problem:
            found.append(Readiness(name, "announced by another package", "", "", (), (str(problem),)))
    return found


def _of(backend: Backend) -> list[Readiness]:
    return [
        Readiness(
            backend=backend.name,
            strategy=backend.strategy,
            framework=framework,
            device=device,
            transports=backend.transports_on(device),
            lacks=tuple(_lacks(backend.environment(framework, device), device)),
        )
        for framework in backend.frameworks
        for device in backend.devices
    ]


def _lacks(wanted: EnvironmentSpec, device: str) -> list[str]:
    gpu = ["an NVIDIA GPU"] if device == "cuda" and not local_gpus() else []
    return gpu + lacking(wanted)
