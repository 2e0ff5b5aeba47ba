"""TensorFlow alone, the environment of the backends that need nothing else. It is no backend itself."""

from pathlib import Path

from harness.environments import EnvironmentSpec, Variant


def environment(backend: str, framework: str, variant: Variant) -> EnvironmentSpec:
    requirements = Path(__file__).with_name(f"requirements-{variant}.txt")
    return EnvironmentSpec(backend, variant, requirements, imports=("tensorflow",))
