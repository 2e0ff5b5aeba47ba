"""Compiles Horovod against the framework in an environment, with MPICH or Open MPI and Gloo, and on GPUs with NCCL.

This file's text is part of the environments' key, the version of Horovod included: any change gives new environments.
CUDA's compiler comes with the wheels of CUDA 13, on which PyTorch is; those of CUDA 12, on which TensorFlow is, have none:
there it is the machine's nvcc.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.environments import Run, mpi

HOROVOD = "0.28.1"  # the last release, of 2023; what follows lets it compile against frameworks that are years younger

# CMake reads one file that an environment variable can name, the toolchain file. It is read before CMake looks for the
# compiler, whose own settings come later, so it asks to be read again after each project().
TOOLCHAIN = """\
set(CMAKE_PROJECT_INCLUDE "${{CMAKE_CURRENT_LIST_FILE}}")
# This MPI, whatever MPI_HOME a site's modules set.
set(MPI_C_COMPILER "{folder}/bin/mpicc")
set(MPI_CXX_COMPILER "{folder}/bin/mpicxx")
"""

# PyTorch's headers are C++20, Horovod asks CMake for C++14. CXXFLAGS cannot raise it: Horovod strips -std from there, and
# CMake puts its own last. So C++14 is spelled C++20.
CXX20 = """\
set(CMAKE_CXX14_STANDARD_COMPILE_OPTION "-std=c++20")
"""

# Horovod sets up any CUDA compiler that it finds, also for CPUs, and one that does not get on with g++ ends the build.
NO_CUDA = """\
set(CMAKE_CUDA_COMPILER "CMAKE_CUDA_COMPILER-NOTFOUND")
set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
"""

# Headers that Horovod includes and TensorFlow's wheels no longer have, below tensorflow/compiler.
TENSORFLOW_HEADERS = {
    # One file of Horovod includes these, for collectives inside functions that XLA compiles for GPUs. We compile none, so
    # they are empty, and the first one, which nothing else includes, says that there is no GPU.
    "tf2xla/xla_op_kernel.h": "#undef HAVE_GPU\n",
    "tf2xla/xla_op_registry.h": "",
    "xla/client/xla_builder.h": "",
    "xla/service/custom_call_target_registry.h": "",
    "xla/service/hlo.pb.h": "",
    "xla/shape.h": "",
    "xla/xla_data.pb.h": "",
    # For GPUs alone: this one has moved, and the function that Horovod declares before it includes it has gone.
    "xla/stream_executor/stream.h": """\
#include "xla/stream_executor/stream.h"
namespace stream_executor::gpu {
inline cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}
}  // namespace stream_executor::gpu
""",
}

# `horovodrun --check-build` tells of frameworks that are not there, so the library itself says what it was built with.
CHECK = """\
import importlib, json, pathlib, sys
framework, version, *wanted = sys.argv[1:]
import horovod
library = importlib.import_module("horovod." + framework)
built_for = json.loads((pathlib.Path(horovod.__file__).parent / "metadata.json").read_text())
lacking = [name for name in wanted if not getattr(library, name.lower() + "_built")()]
if {"torch": "pytorch"}.get(framework, framework) not in built_for:
    lacking.append(framework)
if horovod.__version__ != version:
    lacking.append("the fixes of " + version)
if lacking:
    sys.exit("ERROR: Horovod " + horovod.__version__ + " was built without " + " and ".join(lacking))
"""


def tensorflow_cpu(folder: Path, run: Run) -> None:
    """Compile Horovod against TensorFlow, for CPUs."""
    _compile(folder, run, "tensorflow", NO_CUDA, _tensorflow_headers(folder))


def torch_cpu(folder: Path, run: Run) -> None:
    """Compile Horovod against PyTorch, for CPUs."""
    _compile(folder, run, "torch", CXX20 + NO_CUDA)


def tensorflow_openmpi(folder: Path, run: Run) -> None:
    """Compile Horovod against TensorFlow and Open MPI, for CPUs."""
    _compile(folder, run, "tensorflow", NO_CUDA, _tensorflow_headers(folder), mpi_folder=mpi.open_mpi())


def torch_openmpi(folder: Path, run: Run) -> None:
    """Compile Horovod against PyTorch and Open MPI, for CPUs."""
    _compile(folder, run, "torch", CXX20 + NO_CUDA, mpi_folder=mpi.open_mpi())


def tensorflow_cuda(folder: Path, run: Run) -> None:
    """Compile Horovod against TensorFlow, for NVIDIA GPUs. No test does it: it takes an nvcc, and a GPU to run."""
    _compile(folder, run, "tensorflow", "", _tensorflow_headers(folder) | _nccl(folder), ("NCCL",))


def torch_cuda(folder: Path, run: Run) -> None:
    """Compile Horovod against PyTorch, for NVIDIA GPUs."""
    _compile(folder, run, "torch", CXX20, _toolkit(folder) | _nccl(folder), ("NCCL",))


def _compile(
    folder: Path,
    run: Run,
    framework: str,
    cmake: str,
    variables: Mapping[str, str] | None = None,
    also: tuple[str, ...] = (),
    mpi_folder: Path | None = None,
) -> None:
    """Let pip compile it, with the MPI in ``mpi_folder``, by default the environment's own."""
    toolchain = _kept(folder) / "toolchain.cmake"
    toolchain.write_text(TOOLCHAIN.format(folder=mpi_folder or folder) + cmake, encoding="utf-8")
    this, other = ("TENSORFLOW", "PYTORCH") if framework == "tensorflow" else ("PYTORCH", "TENSORFLOW")
    environ = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",  # its cmake, which calls its python, is found there
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",  # what a batch job may use, not what the node has
        "CMAKE_TOOLCHAIN_FILE": str(toolchain),
        # WITH makes what is otherwise used where it is found a condition.
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        f"HOROVOD_WITH_{this}": "1",
        f"HOROVOD_WITHOUT_{other}": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITHOUT_NVTX": "1",  # a profiler's library, linked if it happens to be there
        "HOROVOD_GPU_OPERATIONS": "",
    }
    inside = folder / "bin" / "python"
    # No isolation: the build must see this environment's framework. No cache: it knows a wheel by its name and version, so
    # one compiled against another framework would be installed. No dependencies: the requirements pin them all. Verbose:
    # make's progress and the compiler's words are worth having.
    run(
        *(inside, "-m", "pip", "-v", "--no-input", "--disable-pip-version-check", "install", "--progress-bar", "off"),
        *("--no-build-isolation", "--no-cache-dir", "--no-deps", "--no-binary", "horovod", "--compile"),
        f"horovod=={HOROVOD}",
        env=environ | dict(variables or {}),
    )
    run(inside, "-c", CHECK, framework, HOROVOD, "MPI", "Gloo", *also)


def _tensorflow_headers(folder: Path) -> dict[str, str]:
    root = _kept(folder) / "include"
    for name, text in TENSORFLOW_HEADERS.items():
        header = root / "tensorflow" / "compiler" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text, encoding="utf-8")
    return {"CXXFLAGS": f"-I{root}"}


def _toolkit(folder: Path) -> dict[str, str]:
    """The folder of CUDA's wheels. It is a toolkit, but for two names that CMake looks for."""
    (root,) = folder.glob("lib/python3.*/site-packages/nvidia/cu13")
    (root / "lib64").symlink_to("lib")
    (root / "lib" / "libcudart.so").symlink_to("libcudart.so.13")
    return {
        "CUDACXX": str(root / "bin" / "nvcc"),
        "CUDAToolkit_ROOT": str(root),
        "CMAKE_LIBRARY_PATH": str(root / "lib"),
        "HOROVOD_CUDA_HOME": str(root),
    }


def _nccl(folder: Path) -> dict[str, str]:
    """NCCL from its wheel, so that Horovod and the framework load the same one."""
    wheel = next(folder.glob("lib/python3.*/site-packages")) / "nvidia" / "nccl"
    links = _kept(folder) / "lib"
    links.mkdir(exist_ok=True)
    for name in ("libnccl.so", "libnccl.so.2"):  # to link with, which the wheel lacks, and to load
        (links / name).symlink_to(wheel / "lib" / "libnccl.so.2")
    return {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_NCCL_INCLUDE": str(wheel / "include"),
        "HOROVOD_NCCL_LIB": str(links),
        "HOROVOD_NCCL_LINK": "SHARED",
    }


def _kept(folder: Path) -> Path:
    """Where the files that the build needs stay: at run time the links, and for people to see how it was built."""
    kept = folder / "share" / "horovod-build"
    kept.mkdir(parents=True, exist_ok=True)
    return kept
