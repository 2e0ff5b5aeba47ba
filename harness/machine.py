"""Facts about this machine and this program, for the record."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from harness import __version__

# What changes how fast or how a run goes. Anything else in the environment is nobody's business.
RELEVANT = re.compile(
    r"(OMP|KMP|GOMP|MKL|ONEDNN|DNNL|OPENBLAS|TF|XLA|TORCH|PYTORCH|GLOO|NCCL|CUDA|NVIDIA|HOROVOD|OMPI|OPAL|MPICH|PMIX?|"
    r"UCX|FI|MALLOC|GRPC)_\w+|LD_PRELOAD|LD_LIBRARY_PATH|LOADEDMODULES|SLURM_(JOB_ID|JOB_NUM_NODES|CLUSTER_NAME|"
    r"JOB_PARTITION|CPUS_PER_TASK|NTASKS)"
)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|AUTH|COOKIE|JWT|KEY", re.IGNORECASE)
USER_IN_URL = re.compile(r"://[^/@\s]+@")


@cache
def describe() -> dict[str, Any]:
    """Host name, processor, memory, operating system and GPUs of this machine."""
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "host": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "os": system.get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "gpus": _gpus(),
    }


def relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that matter to a run, without secrets."""
    return {
        name: USER_IN_URL.sub("://", value)
        for name, value in sorted(environ.items())
        if RELEVANT.fullmatch(name) and not SECRET.search(name)
    }


@cache
def harness_version() -> dict[str, str | None]:
    """This package's version and, in a checkout, its commit (with ``+dirty`` when files differ from it)."""
    folder = Path(__file__).parent
    inside = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git(folder, "rev-parse", "HEAD") if inside else None
    dirty = "+dirty" if commit and _git(folder, "status", "--porcelain", "--untracked-files=no") else ""
    return {"version": __version__, "commit": commit and commit + dirty}


def _git(folder: Path, *arguments: str) -> str | None:
    return _output("git", "-C", str(folder), *arguments)


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor()


def _gpus() -> list[dict[str, str]]:
    listing = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    keys = ("name", "driver", "memory")
    return [dict(zip(keys, line.split(", "), strict=False)) for line in (listing or "").splitlines()]


def _output(*argv: str) -> str | None:
    """What a command prints, or ``None`` when it is missing, fails or takes more than 10 s."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
