"""Facts about the machine and the software of a process, for the record. Runs beside the framework, on a compute node."""

from __future__ import annotations

import os
import platform
import re
import socket
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Mapping

from harness.worker import gpus

# Variables that change the speed or the way of a run. No other ones go into a record.
RELEVANT = re.compile(
    r"(OMP|KMP|GOMP|MKL|ONEDNN|DNNL|OPENBLAS|TF|XLA|JAX|TORCH|PYTORCH|GLOO|NCCL|CUDA|NVIDIA|HOROVOD|OMPI|OPAL|MPICH|"
    r"MPIR|PMIX?|I_MPI|MPI4PY|UCX|FI|MALLOC|GRPC)_\w+|HARNESS_SYS|LD_PRELOAD|LD_LIBRARY_PATH|LOADEDMODULES|"
    r"SLURM_(JOB_ID|JOB_NUM_NODES|CLUSTER_NAME|JOB_PARTITION|CPUS_PER_TASK|NTASKS)"
)
# Words of names whose values may be secrets; NCCL's bypasses and libfabric's credits are none. TF_VAR_ and TF_CLI_ are
# Terraform's, and hold whatever its user has.
SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|(?<!BY)PASS(?![A-Z])|_PWD|CRED(?!IT)|LOGIN|PRIVATE|AUTH|COOKIE|JWT|KEY|^TF_(VAR|CLI)_",
    re.IGNORECASE,
)
# Secrets by their looks: of GitHub, GitLab, Hugging Face, AWS, Slack and OpenAI, JSON Web Tokens, keys; words before one.
SECRET_VALUE = re.compile(
    r"\b(gh[opsu]_|github_pat_|glpat-|hf_|xox[abp]-|sk-)\w{8,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{8,}\.|-----BEGIN|\bBearer\s|"
    r"(token|secret|passw(or)?d|passphrase|signature|credential|api[-_]?key)s?\s*[=:]",
    re.IGNORECASE,
)
USER_IN_URL = re.compile(r"://[^/@\s]+@")


@lru_cache(maxsize=None)
def describe() -> Dict[str, Any]:
    devices = gpus.describe()
    return {
        "host": socket.gethostname(),
        "cpu": _first("/proc/cpuinfo", r"^model name\s*:\s*(.+)$") or platform.processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": _first("/etc/os-release", r'^PRETTY_NAME="?(.*?)"?$') or platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "gpus": devices,
        **({"gpu_topology": gpus.topology()} if devices else {}),
    }


def relevant_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """The environment variables that matter to a run, without secrets."""
    return {
        name: USER_IN_URL.sub("://", value)
        for name, value in sorted(environ.items())
        if RELEVANT.fullmatch(name) and not SECRET.search(name) and not SECRET_VALUE.search(value)
    }


def software() -> Dict[str, Any]:
    packages = {dist.metadata["Name"]: dist.version for dist in metadata.distributions() if dist.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "packages": dict(sorted(packages.items(), key=lambda package: package[0].lower())),
    }


def _first(file: str, pattern: str) -> str:
    """The group of ``pattern`` in a file's first line that matches; empty where there is none."""
    text = Path(file).read_text() if Path(file).exists() else ""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""
