"""Which backends can run on this machine, and what each lacks."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core import backend as backends
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
    rows = []
    for name in backends.names():
        try:
            backend = backends.backend(name)
        except InvalidInput as problem:
            rows.append(Readiness(name, "announced by another package", "", "", (), (str(problem),)))
            continue
        for framework in backend.frameworks:
            for device in backend.devices:
                gpu = ["an NVIDIA GPU"] if device == "cuda" and not local_gpus() else []
                lacks = (*gpu, *lacking(backend.environment(framework, device)))
                rows.append(Readiness(name, backend.strategy, framework, device, backend.transports_on(device), lacks))
    return rows
