"""The environment that all backends share which need TensorFlow and nothing else."""

from __future__ import annotations

from pathlib import Path

from harness.environments import EnvironmentSpec, Variant


def environment(backend: str, framework: str, variant: Variant) -> EnvironmentSpec:
    requirements = Path(__file__).with_name(f"requirements-{variant}.txt")
    return EnvironmentSpec(backend, variant, requirements, imports=("tensorflow",))
