"""Compiles Caffe2's MPI operators into an environment, against MPICH or Open MPI, where there is a C++ compiler.

Without one the environment is complete all the same: the trainer then calls mpi4py from inside the net.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tarfile
import tempfile
from pathlib import Path

from harness.backends.caffe2.trainer.library import LIBRARY
from harness.environments import EnvironmentProblem, Run, mpi

SOURCE = Path(__file__).with_name("mpi_operators.cpp")

# Caffe2's headers include protobuf's, which the wheel lacks and which must be of the version that it was built with: 3.13.
# The source of this release carries them, and pip can fetch it.
PROTOBUF = "grpcio-tools==1.33.2"
HEADERS = "third_party/protobuf/src/"

CHECK = """\
import sys
from caffe2.python import core, dyndep
library, *wanted = sys.argv[1:]
dyndep.InitOpsLibrary(library)
lacking = [name for name in wanted if not core.IsOperatorWithEngine(name, "MPI")]
if lacking:
    sys.exit("ERROR: " + library + " does not register " + " and ".join(lacking))
"""
OPERATORS = ("CreateCommonWorld", "CloneCommonWorld", "Broadcast", "Allreduce")


def operators_cpu(folder: Path, run: Run) -> str | None:
    """Compile ``mpi_operators.cpp`` with $CXX, g++ or c++; without any of them do nothing and say so."""
    return _compile(folder, run, folder)


def operators_openmpi(folder: Path, run: Run) -> str | None:
    """The same against Open MPI."""
    return _compile(folder, run, mpi.open_mpi())


def _compile(folder: Path, run: Run, mpi_folder: Path) -> str | None:
    if not (compiler := _compiler()):
        return "no C++ compiler ($CXX, g++ or c++): without Caffe2's own MPI operators, MPI is called from Python"
    site = next(folder.glob("lib/python3.*/site-packages"))
    library = folder / LIBRARY
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        headers = _protobuf_headers(folder, run, Path(scratch))
        run(
            # The wheel's language, its strings from before C++11 and, for protobuf's inline functions, no debugging.
            *(*compiler, "-std=c++14", "-D_GLIBCXX_USE_CXX11_ABI=0", "-DNDEBUG", "-O2", "-fPIC", "-shared"),
            *("-isystem", site / "torch" / "include", "-isystem", mpi_folder / "include", "-isystem", headers),
            *(SOURCE, "-o", library),
            # What the wheel does not export must fail now and not in the middle of a run.
            "-Wl,--no-undefined",
            *(f"-L{site / 'torch' / 'lib'}", "-ltorch_cpu", "-lc10"),
            *(f"-L{mpi_folder / 'lib'}", "-lmpi", f"-Wl,-rpath,{mpi_folder / 'lib'}"),
        )
    run(folder / "bin" / "python", "-c", CHECK, library, *OPERATORS)
    return None


def _compiler() -> list[str]:
    """The command of the C++ compiler, with the options that $CXX may have; empty if there is none."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and not shutil.which(chosen[0]):
        raise EnvironmentProblem(f"$CXX names {chosen[0]}, which is not on PATH: load its module, or unset CXX")
    return chosen or [compiler for name in ("g++", "c++") if (compiler := shutil.which(name))][:1]


def _protobuf_headers(folder: Path, run: Run, scratch: Path) -> Path:
    # pip asks setup.py what the package depends on, also if nobody wants to know. No isolation: the environment has a
    # setuptools of its age. The variable spares it a trial of the compiler.
    run(
        *(folder / "bin" / "python", "-m", "pip", "--no-input", "--disable-pip-version-check", "download"),
        *("--progress-bar", "off", "--no-build-isolation", "--no-deps", "--no-binary", ":all:"),
        *("--dest", scratch, PROTOBUF),
        env={"GRPC_PYTHON_LDFLAGS": ""},
    )
    with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
        headers = [file for file in archive if HEADERS in file.name and file.name.endswith((".h", ".inc"))]
        archive.extractall(scratch, headers, filter="data")
    return next(scratch.glob(f"*/{HEADERS}"))
