"""Our img/s against a peer's, in turn: A B A B …, so that a machine whose speed drifts treats both alike.

    python benchmarks/alternate.py pytorch --nodes 2
    python benchmarks/alternate.py parameter_server --nodes 2 --peer PATH/TO/scripts/tf_cnn_benchmarks

``pytorch`` runs against ``plain_ddp.py`` beside this file. ``parameter_server`` runs against a checkout of
tf_cnn_benchmarks, which is not part of this project; on TensorFlow 2.21 it needs tf_keras in the environment
(``pip install --no-deps tf_keras``), so give one with ``--env``. Both sides get the same Python, model, batch, image size,
compute threads, number of workers and servers, warm-up and steps; the peer's weight decay is off, as ours has none.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TOTAL = re.compile(r"total images/sec: ([\d.]+)")


def main() -> None:
    """Alternate, and print each pair and the median ratio."""
    options = _options()
    peer = {"pytorch": plain_ddp, "parameter_server": tf_cnn_benchmarks}[options.backend]
    ratios = []
    for number in range(1, options.rounds + 1):
        mine, theirs = ours(options), peer(options)
        ratios.append(mine / theirs)
        print(f"round {number}: harness {mine:.2f}  peer {theirs:.2f} img/s  ratio {ratios[-1]:.3f}", flush=True)
    print(
        f"{options.backend} {options.model} {options.nodes} workers: median ratio {statistics.median(ratios):.3f} "
        f"(min {min(ratios):.3f}, max {max(ratios):.3f}, {options.rounds} rounds)"
    )


def ours(options: argparse.Namespace) -> float:
    """One repeat of ``harness run``."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "harness", "run", "--backend", options.backend, "--output", output]
        command += ["--nodes", str(options.nodes), "--repeats", "1", "--threads", str(options.threads)]
        command += ["--model", options.model, "--batch-size", str(options.batch_size)]
        command += ["--warmup", str(options.warmup), "--steps", str(options.steps)]
        command += ["--image-size", str(options.image_size)] if options.image_size else []
        command += ["--env", options.env] if options.env else []
        command += ["--ps", str(options.ps)] if options.backend == "parameter_server" else []
        return _total(subprocess.run([*command, *options.extra], capture_output=True, text=True))


def plain_ddp(options: argparse.Namespace) -> float:
    """The plain DDP script, with the allocator's thresholds raised as for ours unless ``--plain-malloc`` is given."""
    port = _free_port()
    keep = (
        {} if options.plain_malloc else {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
    )
    command = [_python(options), str(HERE / "plain_ddp.py"), "--world", str(options.nodes), "--port", str(port)]
    command += ["--model", options.model, "--batch-size", str(options.batch_size), "--threads", str(options.threads)]
    command += ["--warmup", str(options.warmup), "--steps", str(options.steps)]
    command += ["--image-size", str(_image_size(options))] + ["--channels-last"] * options.peer_channels_last
    ranks = [_start([*command, "--rank", str(rank)], keep | _threads(options)) for rank in range(options.nodes)]
    return _finish(ranks, servers=[])


def tf_cnn_benchmarks(options: argparse.Namespace) -> float:
    """tf_cnn_benchmarks --variable_update=parameter_server on the same number of workers and servers."""
    if not options.peer:
        sys.exit("--peer PATH/TO/scripts/tf_cnn_benchmarks is required")
    hosts = [f"127.0.0.1:{_free_port()}" for _ in range(options.ps + options.nodes)]
    command = [_python(options), str(Path(options.peer) / "tf_cnn_benchmarks.py"), "--variable_update=parameter_server"]
    command += [
        "--device=cpu",
        "--data_format=NHWC",
        "--local_parameter_device=cpu",
        "--weight_decay=0",
        "--optimizer=sgd",
    ]
    command += [f"--model={options.model}", f"--batch_size={options.batch_size}"]
    command += [f"--num_batches={options.steps}", f"--num_warmup_batches={options.warmup}", "--display_every=1000"]
    command += [f"--num_intra_threads={options.threads}"]
    command += [f"--ps_hosts={','.join(hosts[: options.ps])}", f"--worker_hosts={','.join(hosts[options.ps :])}"]
    env = {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": ""} | _threads(options)
    servers = [_start([*command, "--job_name=ps", f"--task_index={i}"], env) for i in range(options.ps)]
    workers = [_start([*command, "--job_name=worker", f"--task_index={i}"], env) for i in range(options.nodes)]
    return _finish(workers, servers)


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - _finish reads it once the process has ended
    process = subprocess.Popen(command, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT, text=True)
    process.log = log  # type: ignore[attr-defined]
    return process


def _finish(workers: list[subprocess.Popen[str]], servers: list[subprocess.Popen[str]]) -> float:
    """Wait for the workers, end the servers, and return the lowest total that a worker printed."""
    try:
        codes = [worker.wait(timeout=1800) for worker in workers]
    finally:
        for process in [*workers, *servers]:
            process.kill()
            process.wait()
    texts = []
    for worker in workers:
        worker.log.seek(0)  # type: ignore[attr-defined]
        texts.append(worker.log.read())  # type: ignore[attr-defined]
    totals = [float(total) for text in texts for total in TOTAL.findall(text)]
    if any(codes) or not totals:
        sys.exit(f"the peer failed (exit codes {codes}):\n" + "\n".join(texts)[-3000:])
    return min(totals)


def _total(done: subprocess.CompletedProcess[str]) -> float:
    if done.returncode:
        sys.exit(f"harness failed: {done.stderr}")
    return float(TOTAL.findall(done.stdout)[0])


def _python(options: argparse.Namespace) -> str:
    if options.env:
        return str(Path(options.env) / "bin" / "python")
    shown = subprocess.run(
        [sys.executable, "-m", "harness", "env", "path", options.backend], capture_output=True, text=True, check=True
    )
    return str(Path(shown.stdout.strip()) / "bin" / "python")


def _threads(options: argparse.Namespace) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": ""}


def _image_size(options: argparse.Namespace) -> int:
    return options.image_size or {"resnet50": 224, "inception3": 299}[options.model]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=["pytorch", "parameter_server"])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--threads", type=int, help="per worker  [default: cores / nodes]")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env", help="Python environment for both sides")
    parser.add_argument("--peer", help="folder of tf_cnn_benchmarks.py")
    parser.add_argument("--peer-channels-last", action="store_true", help="give the plain DDP script our memory format")
    parser.add_argument(
        "--plain-malloc", action="store_true", help="leave the plain DDP script glibc's allocator settings"
    )
    options, extra = parser.parse_known_args()
    options.extra = extra
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.nodes)
    return options


if __name__ == "__main__":
    main()
