"""Our img/s against a peer's, in turn: A B A B …, so that a machine whose speed drifts treats both alike.

    python benchmarks/alternate.py pytorch --nodes 2
    python benchmarks/alternate.py caffe2 --nodes 1
    python benchmarks/alternate.py parameter_server --nodes 2 --peer PATH/TO/scripts/tf_cnn_benchmarks --keras FOLDER
    python benchmarks/alternate.py distributed_replicated --nodes 2 --peer PATH/TO/scripts/tf_cnn_benchmarks --keras FOLDER
    python benchmarks/alternate.py horovod --framework torch --transport mpi --nodes 2 --peer PATH/TO/horovod/examples
    python benchmarks/alternate.py horovod --framework tensorflow --nodes 2 --peer PATH/TO/horovod/examples --keras FOLDER

    python benchmarks/alternate.py parameter_server --nodes 8 --ps 2 --model inception3 --batch-size 64 --rounds 3 \
        --peer PATH/TO/scripts/tf_cnn_benchmarks --keras FOLDER --state /tmp/CLUSTER --device emulated:p100 --dilation 20

``pytorch`` runs against ``plain_ddp.py`` beside this file, ``caffe2`` against the trainer that comes with Caffe2 (on one
node, see ``resnet50_trainer.py``). The others run against checkouts of tf_cnn_benchmarks and of
Horovod's examples, which are not part of this project. On TensorFlow 2.21 they need tf_keras, in a folder of its own:
``pip install --no-deps --target FOLDER tf_keras``. Both sides get the same Python, batch, image size, compute threads,
number of workers and servers, transport, warm-up and steps. tf_cnn_benchmarks' weight decay is off, as ours has none.
Horovod's PyTorch script trains the suite's own model (see ``as_torchvision``), its TensorFlow script Keras's ResNet-50.

With ``--state`` both sides of ``parameter_server`` and ``distributed_replicated`` run in the nodes of a virtual cluster,
and with ``--device emulated:p100`` on emulated devices (see ``emulated_peer.py``), whose img/s are in their own time.
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

from harness.core.emulation import profile
from harness.core.plan import KEEP_MEMORY
from harness.launch.local import MPI_ENV

HERE = Path(__file__).parent
TOTAL = re.compile(r"total images/sec: ([\d.]+)|Total img/sec on \d+ \w+\(s\): ([\d.]+)")
SERVERS = ("parameter_server", "distributed_replicated")
# As our launcher does it: ranks on one machine talk TCP, as if they were on different nodes.
MPI = {"MPIR_CVAR_NOLOCAL": "1", **MPI_ENV}


def main() -> None:
    """Alternate, and print each pair and the median ratio."""
    options = _options()
    peers = {"pytorch": plain_ddp, "caffe2": resnet50_trainer, "horovod": horovod_example}
    peer = peers.get(options.backend, tf_cnn_benchmarks)
    ratios = []
    for number in range(1, options.rounds + 1):
        mine, theirs = ours(options), peer(options)
        ratios.append(mine / theirs)
        print(f"round {number}: harness {mine:.2f}  peer {theirs:.2f} img/s  ratio {ratios[-1]:.3f}", flush=True)
    print(
        f"{' '.join([options.backend, *_variant(options)])} {options.model} {options.nodes} workers: "
        f"median ratio {statistics.median(ratios):.3f} "
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
        command += ["--ps", str(options.ps)] if options.backend in SERVERS else []
        command += ["--site", f"{options.state}/site.toml"] if options.state else []
        if options.device:
            command += ["--device", options.device, "--dilation", str(options.dilation)]
        command += _variant(options)
        return _total(subprocess.run([*command, *options.extra], capture_output=True, text=True))


def plain_ddp(options: argparse.Namespace) -> float:
    """The plain DDP script, with the allocator's thresholds raised as for ours unless ``--plain-malloc`` is given."""
    port = _free_port()
    keep = {} if options.plain_malloc else KEEP_MEMORY
    command = [_python(options), str(HERE / "plain_ddp.py"), "--world", str(options.nodes), "--port", str(port)]
    command += ["--model", options.model, "--batch-size", str(options.batch_size), "--threads", str(options.threads)]
    command += ["--warmup", str(options.warmup), "--steps", str(options.steps)]
    command += ["--image-size", str(_image_size(options))] + ["--channels-last"] * options.peer_channels_last
    ranks = [_start([*command, "--rank", str(rank)], keep | _threads(options)) for rank in range(options.nodes)]
    return _finish(ranks, servers=[])


def resnet50_trainer(options: argparse.Namespace) -> float:
    """Caffe2's own trainer."""
    if (options.nodes, options.model, _image_size(options)) != (1, "resnet50", 224):
        sys.exit("caffe2: its trainer is run on --nodes 1, and trains resnet50 on images of 224 pixels")
    command = [_python(options), str(HERE / "resnet50_trainer.py"), "--batch-size", str(options.batch_size)]
    command += ["--warmup", str(options.warmup), "--steps", str(options.steps)]
    return _finish([_start(command, _threads(options) | ({} if options.plain_malloc else KEEP_MEMORY))], servers=[])


def horovod_example(options: argparse.Namespace) -> float:
    """Horovod's own synthetic benchmark of the same framework, started by mpiexec or by horovodrun."""
    folder, name = {
        "torch": ("pytorch", "pytorch_synthetic_benchmark.py"),
        "tensorflow": ("tensorflow2", "tensorflow2_synthetic_benchmark.py"),
    }[options.framework or "tensorflow"]
    script = _peer(options) / folder / name
    python = Path(_python(options))
    command = [str(python), str(script), f"--batch-size={options.batch_size}", "--no-cuda", "--num-iters=1"]
    command += [f"--num-warmup-batches={options.warmup}", f"--num-batches-per-iter={options.steps}"]
    env = _threads(options) | {"TF_NUM_INTRAOP_THREADS": str(options.threads), "TF_USE_LEGACY_KERAS": "1"}
    env["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    if options.framework == "torch":
        env |= {"PYTHONPATH": str(HERE / "as_torchvision")} | ({} if options.plain_malloc else KEEP_MEMORY)
    if options.transport == "gloo":
        command = ["horovodrun", "--gloo", "-np", str(options.nodes), *command]
    else:
        command = ["mpiexec", "-n", str(options.nodes), *command]
        env |= MPI
    return _finish([_start(command, env)], servers=[])


def tf_cnn_benchmarks(options: argparse.Namespace) -> float:
    """tf_cnn_benchmarks --variable_update of the same name, on the same number of workers and servers."""
    # Servers are on the first nodes, beside workers, as ours are.
    nodes, inside = [("127.0.0.1", [])] * options.nodes, ["nsenter", "--net", "--uts", "--target"]
    if options.state:
        named = [line.split() for line in (Path(options.state) / "machines").read_text().splitlines()]
        pids = [(Path(options.state) / f"{node}.pid").read_text().split()[0] for node, _ in named]
        nodes = [(address, [*inside, pid, "--"]) for (_, address), pid in zip(named, pids, strict=True)]
    hosts = [f"{nodes[i][0]}:{_free_port()}" for i in [*range(options.ps), *range(options.nodes)]]
    flags = [
        f"--variable_update={options.backend}",
        "--device=cpu",
        "--data_format=NHWC",
        "--local_parameter_device=cpu",
        "--weight_decay=0",
        "--optimizer=sgd",
    ]
    flags += [f"--model={options.model}", f"--batch_size={options.batch_size}"]
    flags += [f"--num_batches={options.steps}", f"--num_warmup_batches={options.warmup}", "--display_every=1000"]
    flags += [f"--num_intra_threads={options.threads}"]
    flags += [f"--ps_hosts={','.join(hosts[: options.ps])}", f"--worker_hosts={','.join(hosts[options.ps :])}"]
    env = {"TF_USE_LEGACY_KERAS": "1"} | _threads(options)
    env["PYTHONPATH"] += f"{os.pathsep}{HERE.parent}"

    def start(role: str, rank: int) -> subprocess.Popen[str]:
        script = [str(_peer(options) / "tf_cnn_benchmarks.py")]
        if options.device:
            device = profile(options.device.removeprefix("emulated:"))
            step_s = options.batch_size / device.steps[options.model].img_per_s
            known = (step_s, device.forward_share, options.dilation, rank, options.nodes)
            script = [str(HERE / "emulated_peer.py"), str(_peer(options)), *map(str, known), "--num_inter_threads=6"]
        own = [f"--job_name={role}", f"--task_index={rank}"]
        return _start([*nodes[rank][1], _python(options), *script, *flags, *own], env)

    servers = [start("ps", rank) for rank in range(options.ps)]
    workers = [start("worker", rank) for rank in range(options.nodes)]
    return _finish(workers, servers) * options.dilation


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
    totals = [_number(found) for text in texts for found in TOTAL.findall(text)]
    if any(codes) or not totals:
        sys.exit(f"the peer failed (exit codes {codes}):\n" + "\n".join(texts)[-3000:])
    return min(totals)


def _total(done: subprocess.CompletedProcess[str]) -> float:
    if done.returncode:
        sys.exit(f"harness failed: {done.stderr}")
    return _number(TOTAL.findall(done.stdout)[0])


def _number(found: tuple[str, str]) -> float:
    """Whichever of the two forms of the total was there."""
    return float(found[0] or found[1])


def _variant(options: argparse.Namespace) -> list[str]:
    return [
        word
        for name in ("framework", "transport")
        if (value := getattr(options, name))
        for word in (f"--{name}", value)
    ]


def _peer(options: argparse.Namespace) -> Path:
    if not options.peer:
        sys.exit(f"--peer FOLDER is required for {options.backend}")
    return Path(options.peer)


def _python(options: argparse.Namespace) -> str:
    if options.env:
        return str(Path(options.env) / "bin" / "python")
    command = [sys.executable, "-m", "harness", "env", "path", options.backend]
    command += ["--framework", options.framework] if options.framework else []
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(Path(shown.stdout.strip()) / "bin" / "python")


def _threads(options: argparse.Namespace) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": options.keras, "CUDA_VISIBLE_DEVICES": ""}


def _image_size(options: argparse.Namespace) -> int:
    return options.image_size or {"resnet50": 224, "inception3": 299}[options.model]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=["pytorch", "caffe2", "horovod", *SERVERS])
    parser.add_argument("--framework", choices=["tensorflow", "torch"])
    parser.add_argument("--transport", choices=["mpi", "gloo"])
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
    parser.add_argument("--peer", help="folder of tf_cnn_benchmarks.py, or of Horovod's examples")
    parser.add_argument("--keras", default="", help="folder with tf_keras")
    parser.add_argument("--state", help="state directory of a virtual cluster, in whose nodes servers and workers run")
    parser.add_argument("--device", help="an emulated one")
    parser.add_argument("--dilation", type=float, default=1.0)
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
