"""What goes into Horovod's environments. The tests of the backend build and use them; here nothing is compiled."""

import inspect
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness import environments
from harness.backends.horovod import build
from harness.backends.horovod.backend import environment
from harness.environments import EnvironmentSpec, Variant

pytestmark = pytest.mark.usefixtures("cache")
VARIANTS: tuple[Variant, ...] = ("cpu", "cuda")
ALL = [environment(framework, variant) for framework, variant in itertools.product(("tensorflow", "torch"), VARIANTS)]
each = pytest.mark.parametrize("spec", ALL, ids=lambda spec: f"{spec.framework}-{spec.variant}")
Commands = list[tuple[list[str], Mapping[str, str]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib/python3.11/site-packages/nvidia/cu13/lib").mkdir(parents=True)
    return tmp_path


def commands(spec: EnvironmentSpec, folder: Path) -> Commands:
    """What building runs, with the variables it adds."""
    noted: Commands = []

    def note(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        noted.append(([str(word) for word in argv], env or {}))

    assert spec.post_build
    spec.post_build(folder, note)
    return noted


def test_every_framework_and_variant_has_an_environment_of_its_own() -> None:
    names = [environments.path(spec).name.rpartition("-")[0] for spec in ALL]
    assert names == ["horovod-tensorflow-cpu", "horovod-tensorflow-cuda", "horovod-torch-cpu", "horovod-torch-cuda"]


def test_version_of_horovod_and_what_it_is_compiled_for_are_part_of_the_key() -> None:
    assert f'\nHOROVOD = "{build.HOROVOD}"' in inspect.getsource(build)  # the text of which is hashed
    spec = environment("torch", "cpu")
    assert environments.path(replace(spec, post_build=build.torch_cuda)) != environments.path(spec)


@each
def test_framework_is_the_one_that_it_is_compared_with(spec: EnvironmentSpec) -> None:
    peer = {"tensorflow": "tensorflow", "torch": "pytorch"}[spec.framework or ""]
    theirs = environments.pins(spec.requirements.parent.parent / peer / f"requirements-{spec.variant}.txt")
    ours = environments.pins(spec.requirements)
    assert {name for name in theirs if name in ours and ours[name] != theirs[name]} == {"setuptools"}
    assert set(theirs) - set(ours) <= {"mpi4py"}  # which the pytorch backend calls MPI through; Horovod calls it itself


@each
def test_build_compiles_the_pinned_release_with_mpi_and_gloo_and_then_looks_at_it(
    spec: EnvironmentSpec, folder: Path
) -> None:
    (compile_, variables), (check, _) = commands(spec, folder)
    assert compile_[-1] == f"horovod=={build.HOROVOD}"
    assert {"--no-binary", "--no-build-isolation", "--no-cache-dir", "--no-deps", "-v"} <= set(compile_)
    assert variables["HOROVOD_WITH_MPI"] == variables["HOROVOD_WITH_GLOO"] == "1"
    assert variables["PATH"].split(os.pathsep)[0] == str(folder / "bin")
    assert variables["MAKEFLAGS"] == f"-j{len(os.sched_getaffinity(0))}"
    assert f'"{folder}/bin/mpicxx"' in Path(variables["CMAKE_TOOLCHAIN_FILE"]).read_text()
    asked = ["MPI", "Gloo"] if spec.variant == "cpu" else ["MPI", "Gloo", "NCCL"]
    assert check[-len(asked) - 2 :] == [spec.framework, build.HOROVOD, *asked]


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_gpu_build_links_the_nccl_of_the_wheel(framework: str, folder: Path) -> None:
    nccl = folder / "lib" / "python3.11" / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    nccl.parent.mkdir(parents=True)
    nccl.touch()
    _, variables = commands(environment(framework, "cuda"), folder)[0]
    assert variables["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert (Path(variables["HOROVOD_NCCL_LIB"]) / "libnccl.so").samefile(nccl)


@pytest.mark.parametrize(
    ("gloo", "built_for", "complaint"),
    [
        (True, "pytorch", ""),
        (False, "pytorch", "ERROR: Horovod 0.28.1 was built without Gloo\n"),
        (False, "tensorflow", "ERROR: Horovod 0.28.1 was built without Gloo and torch\n"),
    ],
)
def test_build_that_lacks_something_fails_and_names_it(
    tmp_path: Path, gloo: bool, built_for: str, complaint: str
) -> None:
    package = tmp_path / "horovod"
    (package / "torch").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.28.1'")
    (package / "torch" / "__init__.py").write_text(f"mpi_built = lambda: True\ngloo_built = lambda: {gloo}")
    (package / "metadata.json").write_text(json.dumps({built_for: "2.13.0", "dummy": "none"}))
    argv = [sys.executable, "-c", build.CHECK, "torch", "0.28.1", "MPI", "Gloo"]
    done = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1 if complaint else 0, complaint)
