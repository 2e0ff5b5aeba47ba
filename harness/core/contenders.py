"""What to compare: backends, each perhaps on several frameworks and over several transports."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core import backend as backends
from harness.core.backend import Backend
from harness.errors import InvalidInput


@dataclass(frozen=True)
class Contender:
    """A backend in a comparison. None stands for the framework or transport of the whole comparison, or the default."""

    backend: Backend
    framework: str | None = None
    transport: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """As fields of a spec."""
        fields = {"backend": self.backend.name, "framework": self.framework, "transport": self.transport}
        return {name: value for name, value in fields.items() if value}


def contenders(names: list[str] | None, device: str) -> list[Contender]:
    """What ``names`` such as ``parameter_server`` or ``horovod:torch:gloo`` stand for, in their order.

    Without names: every backend, on each of its frameworks, over each transport there is between ``device``s ("cpu" or
    "cuda"). Raises InvalidInput for what is unknown or named twice.
    """
    if names is None:
        return [
            Contender(backend, framework, transport)
            for backend in backends.working()
            if device in backend.devices
            for framework in backend.frameworks
            for transport in backend.transports_on(device)
        ]
    chosen: list[Contender] = []
    for text in names:
        name, *qualifiers = text.split(":")
        backend = backends.backend(name)
        if device not in backend.devices:
            raise InvalidInput(
                f"--backends {text}: the device is {device}, and {backend.name} trains on {', '.join(backend.devices)} only"
            )
        transports = backend.transports_on(device)
        fields: dict[str, str] = {}
        for qualifier in qualifiers:
            kind = "framework" if qualifier in backend.frameworks else "transport"
            if kind == "transport" and qualifier not in transports:
                raise InvalidInput(
                    f"--backends {text}: '{qualifier}' is neither a framework ({', '.join(backend.frameworks)}) nor, "
                    f"between {device} devices, a transport ({', '.join(transports)}) of {backend.name}"
                )
            if kind in fields:
                raise InvalidInput(f"--backends {text}: two {kind}s, {fields[kind]} and {qualifier}")
            fields[kind] = qualifier
        contender = Contender(backend, **fields)
        if contender in chosen:
            raise InvalidInput(f"--backends: '{text}' is there twice")
        chosen.append(contender)
    return chosen
