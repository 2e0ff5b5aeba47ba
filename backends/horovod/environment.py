"""The environments of the Horovod backend: one for each framework and variant."""

from __future__ import annotations

from pathlib import Path

from harness.backends.horovod import build
from harness.environments import EnvironmentSpec, Variant

FOLDER = Path(__file__).parent

IMPORTS = {
    "tensorflow": ("horovod.tensorflow", "tensorflow"),
    "torch": ("horovod.torch", "torch", "PIL"),
}
BUILD = {
    ("tensorflow", "cpu"): build.tensorflow_cpu,
    ("tensorflow", "cuda"): build.tensorflow_cuda,
    ("torch", "cpu"): build.torch_cpu,
    ("torch", "cuda"): build.torch_cuda,
}
TOOLS = {"cpu": ("g++", "make"), "cuda": ("g++", "make", "nvcc")}


def environment(framework: str, variant: Variant) -> EnvironmentSpec:
    """What Horovod on ``framework`` ("tensorflow" or "torch") needs beside it."""
    return EnvironmentSpec(
        "horovod",
        variant,
        FOLDER / f"requirements-{framework}-{variant}.txt",
        imports=IMPORTS[framework],
        post_build=BUILD[framework, variant],
        tools=TOOLS[variant],
        framework=framework,
    )
