"""NVIDIA's GPUs of a host, as ``nvidia-smi`` describes them: which there are, their settings, how they kept their clocks.

Formats: ``nvidia-smi --help-query-gpu``, and the MIG user guide for the instances that ``nvidia-smi -L`` lists.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, Dict, List, Optional

from harness.worker.process import ending_with_this

# A record's names for what ``--query-gpu`` calls otherwise. Drivers before R450 refuse the whole query for one of SETTINGS.
FACTS = {"name": "name", "driver": "driver_version", "memory": "memory.total"}
SETTINGS = {
    "uuid": "uuid",
    "bus": "pci.bus_id",
    "persistence": "persistence_mode",
    "ecc": "ecc.mode.current",
    "mig": "mig.mode.current",
    "compute_mode": "compute_mode",
    "power_limit": "power.limit",
    "default_power_limit": "power.default_limit",
    "highest_sm_clock": "clocks.max.sm",
    "highest_memory_clock": "clocks.max.memory",
}
# Why a GPU runs slower than its highest clock: bits of nvml.h's nvmlClocksEventReason*. To reach the power limit, 0x4, is
# usual at full load; these are faults of the cooling or of the power supply.
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = 0x04
CORRUPTED_INFOROM = 14  # nvidia-smi(1): a warning, in an answer that is whole
DRIVER = Path("/proc/driver/nvidia")
NONE = ("NoDevFiles", "-1", "void")  # what CUDA_VISIBLE_DEVICES is where a batch system has given no GPU
HANDED_OUT = "HARNESS_GPUS"  # what a task's CUDA_VISIBLE_DEVICES was, before the plan's took its place
WATCHED = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # since R535, and before
EVERY_MS = 200  # a look costs another process some milliseconds on a core of its own, this one nothing
EVERY_MS_OF_TRAININGS = 2000  # which take hours, and every look is kept until the end


def ask(*arguments: str) -> str:
    """The output of ``nvidia-smi``; empty where it is missing, fails or takes more than 10 s."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode not in (0, CORRUPTED_INFOROM):
        return ""
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("WARNING: "))


def devices(listing: str) -> List[str]:
    """The UUIDs in the output of ``nvidia-smi -L``: of each GPU or, where it is divided, of its MIG instances.

    CUDA accepts these names, whatever order it numbers GPUs in. An undivided GPU whose MIG mode is on is left out by CUDA,
    which this listing does not tell.
    """
    names: List[str] = []
    gpu = ""
    for line in listing.splitlines():
        if match := re.search(r"\(UUID: (MIG-[\w/-]+)\)", line):
            names = [name for name in names if name != gpu] + [match[1]]
        elif match := re.search(r"\(UUID: (GPU-[\w-]+)\)", line):
            gpu = match[1]
            names.append(gpu)
    return names


def visible(planned: str, handed_out: str) -> Optional[str]:
    """CUDA_VISIBLE_DEVICES where a batch system has ``handed_out`` GPUs to a job that ``planned`` some.

    Numbers in a plan are places among those; a GPU with a name of its own stays as it is, and so do all if none were handed
    out. None if there are not that many.
    """
    allocated, names = handed_out.split(","), planned.split(",")
    if not all(allocated) or not all(name.isdigit() for name in names):
        return planned
    if max(map(int, names)) >= len(allocated):
        return None
    return ",".join(allocated[int(name)] for name in names)


def describe() -> List[Dict[str, str]]:
    """Each GPU with its settings, in the order of their PCI addresses; without ``nvidia-smi`` its name in the driver."""
    for fields in ({**FACTS, **SETTINGS}, FACTS):
        if text := ask(f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader"):
            rows = [line.split(", ") for line in text.strip().splitlines()]
            # A GPU that has fallen off the bus is an error message among the others.
            return [dict(zip(fields, row)) if len(row) == len(fields) else {"lost": ", ".join(row)} for row in rows]
    named = ((folder.name, (folder / "information").read_text()) for folder in listed_by_driver())
    return [
        {"name": model[1], "bus": bus} for bus, text in named if (model := re.search(r"^Model:\s*(.+)$", text, re.M))
    ]


def listed_by_driver() -> List[Path]:
    """A folder for each GPU."""
    return sorted((DRIVER / "gpus").glob("*"))


def topology() -> List[str]:
    """The lines of ``nvidia-smi topo -m``: how GPUs and network cards are linked, and to which cores and NUMA nodes."""
    plain = re.sub(r"\x1b\[\d*m", "", ask("topo", "-m"))  # its header is underlined
    return [line.strip() for line in plain.splitlines() if line.strip()]


class GpuWatch:
    """Looks at GPUs while something is measured, with an ``nvidia-smi`` of its own.

    ``visible`` is what CUDA_VISIBLE_DEVICES says, or "" where there is nothing to watch. MIG instances have no clocks of
    their own and are not watched.
    """

    def __init__(self, visible: str, every_ms: int = EVERY_MS) -> None:
        self._gpus, self._every_ms = "" if "MIG-" in visible else visible, every_ms
        self._lines: List[str] = []
        self._process: Optional[subprocess.Popen[bytes]] = None

    def begin(self) -> None:
        """Start to look. To be called before the window, because starting a process takes time."""
        if not self._gpus:
            return
        reasons = next((field for field in REASONS if ask(*self._arguments(field))), None)
        if reasons is None:
            return
        query = ["nvidia-smi", *self._arguments(reasons), f"--loop-ms={self._every_ms}"]
        # On a terminal a program writes line by line; into a pipe it may keep them back until it ends, and it is killed.
        terminal, its_end = os.openpty()
        self._process = subprocess.Popen(
            ending_with_this(query),
            stdin=subprocess.DEVNULL,
            stdout=its_end,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_end)
        self._reader = Thread(target=self._read, args=(terminal,), daemon=True)
        self._reader.start()

    def end(self) -> Dict[str, Any]:
        """Stop, and return the evidence "gpu" (see ``summary``); empty where nothing could be watched."""
        if self._process is None:
            return {}
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        return {"gpu": summary(self._lines)}

    def _arguments(self, reasons: str) -> List[str]:
        return [f"--id={self._gpus}", f"--query-gpu={','.join((*WATCHED, reasons))}", "--format=csv,noheader,nounits"]

    def _read(self, terminal: int) -> None:
        with suppress(OSError), os.fdopen(terminal, errors="replace") as lines:  # EIO: the other end is closed
            for line in lines:
                self._lines.append(line)


def summary(lines: List[str]) -> Dict[str, Any]:
    """Least, median and most of each figure (MHz, °C, W) in lines of WATCHED and reasons; empty without a whole line.

    ``slowed`` counts the samples in which a GPU was slowed down, by reason, ``power_capped`` those at its power limit.
    Neither is there where a GPU tells no reasons.
    """
    samples = [values for line in lines if len(values := line.strip().split(", ")) == len(WATCHED) + 1]
    # The last line may be cut off, and where a GPU does not tell there is "[N/A]" or "[Not Supported]".
    samples = [values for values in samples if re.fullmatch(r"0x[\da-fA-F]+|\[.+\]", values[-1])]
    if not samples:
        return {}
    figures: Dict[str, Any] = {"samples": len(samples)}
    for column, name in enumerate(("sm_mhz", "memory_mhz", "celsius", "watts")):
        numbers = [float(values[column]) for values in samples if re.fullmatch(r"[\d.]+", values[column])]
        if numbers:
            figures[name] = [min(numbers), median(numbers), max(numbers)]
    reasons = [int(values[-1], 16) for values in samples if values[-1].startswith("0x")]
    if not reasons:
        return figures
    counts = {name: sum(bool(active & bit) for active in reasons) for bit, name in SLOWDOWNS.items()}
    figures["slowed"] = {name: count for name, count in counts.items() if count}
    figures["power_capped"] = sum(bool(active & POWER_CAP) for active in reasons)
    return figures
