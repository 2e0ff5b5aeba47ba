"""The environments for GPUs on a machine without one: they install, import, and say what is missing in one line.

That of PyTorch takes 5 GB and 40 s once, the others 17 GB and 7 minutes, Horovod's compiler among them: those only
``make test-all`` builds.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Harness, shell_program

GPU = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
SLOW, ALL = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.mark.parametrize(
    ("backend", "framework", "imports"),
    [
        pytest.param(
            "pytorch", "torch", "torch; assert torch.version.cuda and torch.distributed.is_nccl_available()", marks=SLOW
        ),
        pytest.param("horovod", "torch", "horovod.torch; assert horovod.torch.nccl_built()", marks=ALL),
        pytest.param("jax", "jax", "jax_plugins.xla_cuda13", marks=ALL),
        pytest.param(
            "parameter_server", "tensorflow", "tensorflow as tf; assert tf.test.is_built_with_cuda()", marks=ALL
        ),
    ],
)
def test_an_environment_for_gpus_installs_and_names_the_missing_driver(
    harness: Harness,
    environment: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    framework: str,
    imports: str,
) -> None:
    """``nvidia-smi`` lists a GPU here, for which there is no driver: no run comes further without one."""
    python = environment(backend, framework, "cuda")
    subprocess.run([python, "-c", f"import {imports}"], check=True, capture_output=True, timeout=120)
    run = ["run", "--backend", backend, "--framework", framework, "--device", "cuda", "--model", "pointwise"]
    harness(*run).refused("the nodes have 0 GPUs each")

    said = f'case "$*" in -L) echo "GPU 0: NVIDIA H200 (UUID: {GPU})" ;; *) exit 1 ;; esac'
    smi = shell_program(tmp_path / "bin" / "nvidia-smi", said)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    failed = harness(*run, "--batch-size", "2", "--image-size", "32", "--steps", "3", "--repeats", "1")
    first = failed.stderr.split("\n    ", 1)[0]
    assert failed.code == 1 and "sees no GPU" in first and "is there an NVIDIA driver" in first, failed.stderr
