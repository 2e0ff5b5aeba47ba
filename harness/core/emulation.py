"""Emulated devices: the time of a step on a device that is not here, and the checks of such a run.

The kernels of a network are replaced by waiting for the time that they take on the device. All else is real: framework,
processes, tensors, placement, exchange, network. A second of the device takes ``dilation`` seconds, so that few cores can
carry many ranks, and links are slower by as much. ``docs/emulation.md`` has method and limits.

A device is a file, ``devices/NAME.toml`` or the user's own, with the measured time of one step for each network.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import Field, TypeAdapter

from harness import models
from harness.core.spec import EMULATED, Frozen, RunSpec
from harness.core.validation import making_sense_of
from harness.errors import InvalidInput

DEVICES = Path(__file__).parent / "devices"

# A run counts if the machine could keep up. Times are in seconds of the device, shares are of its window.
MOST_BUSY = 0.7  # of all cores, with what the hypervisor took, on average over the window
MOST_BURSTS = 0.05  # of a window's slices (a twentieth of a step each) in which all cores were busy
MOST_LATE = 0.02  # sum of all delays of a rank beyond its deadlines, against its window
MOST_LATE_P99_S = 0.002  # 99th percentile of a rank's delays
MOST_RESENT = 0.001  # of the TCP segments that were sent
MACHINE, DEVICE, LINKS = KEPT_UP = ("machine_kept_up", "device_kept_time", "links_kept_segments")  # names of the checks
STEADY = "steady_steps"


class DeviceStep(Frozen):
    """The measured speed of a network on a device, alone."""

    img_per_s: float = Field(gt=0)
    batch_size: int = Field(ge=1)  # per device
    image_size: int | None = None  # pixels a side; None: the model's own
    source: str = Field(min_length=1)  # who measured it, and how


class DeviceProfile(Frozen):
    """A device, with its steps by the name of the model."""

    description: str
    forward_share: float = Field(gt=0, lt=1)  # of a step, which its forward pass takes
    steps: dict[str, DeviceStep]


class Emulation(Frozen):
    """The emulated device of a plan."""

    device: str
    step_s: float  # of one device alone, undilated
    forward_share: float
    source: str


class Kept(Frozen):
    """Figures of how well a rank's machine kept up within the window. Times are real ones."""

    busy: list[float]  # share of all cores' time not idle, the hypervisor's included, by slice of a twentieth of a step
    late_sum_s: float  # the sum of the delays between a deadline of the device and waking up for it
    late_p99_s: float  # their 99th percentile
    stalled_s: float  # the time that the devices waited for parameters and images
    computed_s: float  # the time that they computed in all, delays included
    stalls_s: tuple[float, ...] = ()  # the waits of the first device before each layer of the forward pass, in order
    sent: int  # TCP segments
    resent: int  # of these
    link_bytes_per_s: float | None  # the limit of the rank's interface; None if there is none, or nobody can tell
    forked: bool = False  # the process shares its framework's memory with those of the same run


def known() -> list[str]:
    return sorted(file.stem for file in DEVICES.glob("*.toml"))


def profile(name: str) -> DeviceProfile:
    """The device of this name, or in this file. Raises InvalidInput."""
    file = DEVICES / f"{name}.toml"
    if not file.exists():
        file = Path(name)
    option = f"--device {EMULATED}{name}"
    if not file.exists():
        raise InvalidInput(f"{option}: neither one of {', '.join(known())}, nor a file")
    with making_sense_of(option):
        content = tomllib.loads(file.read_text())
        fields = {key: content.pop(key) for key in ("description", "forward_share") if key in content}
        return DeviceProfile(**fields, steps=TypeAdapter(dict[str, DeviceStep]).validate_python(content))


def emulation(spec: RunSpec) -> Emulation | None:
    """The emulation in a run of this completed spec, if any. Raises InvalidInput where the device's time is not known."""
    if not spec.emulated:
        return None
    option, device = f"--device {spec.device}", profile(spec.emulated)
    if spec.kernel:
        raise InvalidInput(f"{option}: kernels are measured on real devices")
    if spec.training or spec.precision != "fp32":
        wrong = "train" if spec.training else f"--precision {spec.precision}"
        raise InvalidInput(f"{option} with {wrong}: emulated devices take as long as in fp32, and learn nothing")
    step = device.steps.get(spec.model)
    if step is None:
        raise InvalidInput(f"{option}: it is known with {', '.join(device.steps)}, not with {spec.model}")
    pixels = step.image_size or models.specification(spec.model).image_size
    if (step.batch_size, pixels) != (spec.batch_size, spec.image_size):
        raise InvalidInput(
            f"{option}: its speed with {spec.model} is known for --batch-size {step.batch_size} --image-size {pixels}"
        )
    return Emulation(
        device=device.description,
        step_s=step.batch_size / step.img_per_s,
        forward_share=device.forward_share,
        source=step.source,
    )


def kept_up(kept: Sequence[Kept], windows_s: Sequence[float], dilation: float) -> Mapping[str, tuple[bool, str]]:
    """The checks of whether machines kept up, by name: passed, and the figures. ``windows_s`` are real, one per rank."""

    def most(of_slice: Callable[[float], float]) -> float:
        """The mean over the window of the rank where it is largest; all, where nobody has looked."""
        return max(fmean(map(of_slice, rank.busy)) if rank.busy else 1.0 for rank in kept)

    busy, bursts = most(float), most(lambda share: share > 0.98)
    late = max(rank.late_sum_s / window for rank, window in zip(kept, windows_s, strict=True))
    p99_s = max(rank.late_p99_s for rank in kept) / dilation
    resent = sum(rank.resent for rank in kept) / max(1, sum(rank.sent for rank in kept))
    return {
        MACHINE: (
            busy <= MOST_BUSY and bursts <= MOST_BURSTS,
            f"cores busy {busy:.0%} of the window, limit {MOST_BUSY:.0%}; "
            f"all of them in {bursts:.0%} of its slices, limit {MOST_BURSTS:.0%}",
        ),
        DEVICE: (
            late <= MOST_LATE and p99_s <= MOST_LATE_P99_S,
            f"delays add up to {late:.1%} of a window, limit {MOST_LATE:.0%}; "
            f"their 99th percentile is {p99_s * 1e3:.2g} ms of the device, limit {MOST_LATE_P99_S * 1e3:g} ms",
        ),
        LINKS: (
            resent <= MOST_RESENT,
            f"{resent:.2%} of the TCP segments were sent again, limit {MOST_RESENT:.1%}",
        ),
    }


def remedy(failed: Collection[str]) -> list[str]:
    """Advice when checks of these names have failed, a clause each."""
    late = ["take a larger --dilation, with links slower by as much"] if set(KEPT_UP) & set(failed) else []
    return late + ["give more --steps"] * (STEADY in failed)


def system(spec: RunSpec, device: str, link_bytes_per_s: float | None) -> str:
    """``emulated NVIDIA Tesla P100 with 0.1 of the bytes and links of 2.43 GB/s``: what runs must share to be compared.

    That is all but the dilation: a link is as fast as what it carries in a second of the ``device``.
    """
    having = [f"{spec.bytes_scale:g} of the bytes"] if spec.bytes_scale != 1 else []
    if link_bytes_per_s:
        having.append(f"links of {link_bytes_per_s * spec.dilation / spec.bytes_scale / 1e9:.3g} GB/s")
    return " with ".join(filter(None, [f"emulated {device}", " and ".join(having)]))


def short(systems: Iterable[str]) -> dict[str, str]:
    """For each name of a ``system`` on a host ``emulated P100 with 0.1 of the bytes at 2.43 GB/s``.

    Other names, and those that would become one, stay as they are.
    """
    device = {name: re.sub(r".*, emulated (NVIDIA )?(Tesla )?", "emulated ", name) for name in systems}
    names = {name: re.sub(r" (with|and) links of ", " at ", of_device) for name, of_device in device.items()}
    counts = Counter(names.values())
    return {name: new if counts[new] == 1 else name for name, new in names.items()}
