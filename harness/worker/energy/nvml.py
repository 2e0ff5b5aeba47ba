"""NVIDIA's GPUs: the counter of NVML, ``nvmlDeviceGetTotalEnergyConsumption`` (Volta and later), in millijoules.

It covers the whole board of a GPU with its memory, whoever uses it. An instance of a divided GPU (MIG) has none.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, List, Sequence

from harness.worker.energy.counter import Counter

LIBRARY = "libnvidia-ml.so.1"
UPDATE_S = 0.1  # "Part-time Power Measurements" (Yang, Adamek and Armour, 2023): 20 to 100 ms on Volta and later


def find(gpus: Sequence[str], library: str = LIBRARY) -> List[Counter]:
    """The counters of ``gpus``, which are called as in CUDA_VISIBLE_DEVICES. Raises OSError, which says why."""
    if not gpus:
        return []
    try:
        nvml = ctypes.CDLL(library)
        _call(nvml, "nvmlInit_v2")
        return [Counter("nvml", "gpu", gpu, UPDATE_S, partial(_joules, nvml, _handle(nvml, gpu))) for gpu in gpus]
    except OSError as error:
        raise OSError(f"nvml: {error}") from None


def _handle(nvml: Any, gpu: str) -> ctypes.c_void_p:
    """The handle of a GPU. Numbers follow the order of the bus, which is CUDA's where all GPUs are alike."""
    if gpu.startswith("MIG"):
        raise OSError(f"{gpu} is an instance of a GPU, which has no counter of its own")
    handle = ctypes.c_void_p()
    if gpu.isdigit():
        _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    else:
        _call(nvml, "nvmlDeviceGetHandleByUUID", gpu.encode(), ctypes.byref(handle))
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    mode = getattr(nvml, "nvmlDeviceGetMigMode", None)  # drivers before R450 have no such function
    if mode and not mode(handle, ctypes.byref(current), ctypes.byref(pending)) and current.value:
        raise OSError(f"{gpu} is divided into instances, and its counter is of all of them")
    return handle


def _joules(nvml: Any, handle: ctypes.c_void_p) -> float:
    millijoules = ctypes.c_ulonglong()
    _call(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(millijoules))
    return millijoules.value / 1e3


def _call(nvml: Any, name: str, *arguments: Any) -> None:
    if code := getattr(nvml, name)(*arguments):
        raise OSError(f"{name} fails with code {code}")
