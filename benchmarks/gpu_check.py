"""All that a GPU settles, in one command: `make gpu-check` on a machine that has one, with the PyTorch that is there.

    python benchmarks/gpu_check.py --fill                       # before, with a network: harness' dependencies as wheels
    python3 benchmarks/gpu_check.py --env python3               # there, without a network
    python3 benchmarks/gpu_check.py --env PYTHON --device cpu   # the part of it that takes no GPU

It needs nothing but the standard library and a PyTorch with NumPy: what `harness run` imports is unpacked from the wheels.
harness itself runs on Python 3.11 to 3.13; where PYTHON is another one, --core names one in which harness' dependencies are
installed. Each check passes, fails, or could not be made; it says so in words, and all of it is in gpu-check.json. The exit
code is 0 if all have passed. Checks without times are made side by side. After --limit seconds what is left is not
begun, and 30 s later what has not ended is given up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")  # that harness itself can run on
NEEDED = ("click", "jinja2", "pillow", "psutil", "pydantic")  # what `harness run` imports of its dependencies
IMPORTED = ("click", "jinja2", "PIL", "psutil", "pydantic")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
TOTAL = re.compile(r"total images/sec: ([\d.]+)")
# img/s of ResNet-50 v1 with mixed precision on synthetic images: what public configurations of the same class reach with
# v1.5 (4,008 on an H100 at batch 272, 4,868 on an H200 at 256), and 5 % for what v1 has less to compute.
BARS = {"H100": (4210.0, 272), "H200": (5110.0, 256)}
PEER_BAR = 1.10
ROOM = 40e9  # bytes of GPU memory that all batches fit into; those for less are halved until they do
GRACE_S = 30.0  # after --limit, for what has begun
LONGEST_S = 180.0  # that a command may take
CLOCK_LIMIT = 1e-3  # by which the GPU's clock and the host's may differ, and what marks may take of a step
ENERGY_LIMIT = 0.03  # by which NVML's counter of joules and its power, seen five times a second, may differ
BYTES_LIMIT = 0.05  # headers and barriers, as in tests/parity/test_bytes.py
# How far a loss may be from the CPU's in float32, relatively, within 14 steps: rounding of 24, 11 and 8 bits.
LOSSES = {"fp32": 1e-3, "tf32": 2e-2, "amp": 5e-2, "fp16": 5e-2}


Outcome = tuple[str, dict[str, Any]]  # of a check: in words, and its figures


class Failed(Exception):
    """A check found something wrong, or could not be carried out."""


class NotChecked(Exception):
    """A check lacks something that it needs."""


class Check(NamedTuple):
    """A check by its name: ``make`` returns what it has found, in words, with its figures. ``gpu``: it needs one.

    ``timed``: its times count, so it has the machine to itself.
    """

    name: str
    gpu: bool
    make: Callable[[], Outcome]
    timed: bool = False


class Machine:
    """Runs harness and scripts, until ``ends``. ``torch`` has what PYTHON's PyTorch says of itself and of the GPU.

    ``alone``: the GPU takes one process at a time.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.ends = time.monotonic() + options.limit + GRACE_S
        self.output = options.output
        self.python = shutil.which(options.env) or options.env
        self.core = core(options.core, self.python)
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((unpacked(self, options), str(ROOT))),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # nvidia-smi's, so that the first GPU is the same one for all
            "XDG_CONFIG_HOME": str(self.output / "no-config"),  # what users have set for themselves is not checked
        }
        self.torch = self._torch()
        self.device = "cuda" if options.device == "cuda" and self.torch["gpu"] else "cpu"
        self.visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.alone = self.device == "cuda" and self._alone()

    def _alone(self) -> bool:
        try:
            return "Exclusive" in self.carried_out(["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"])
        except (Failed, NotChecked):
            return False

    def _torch(self) -> dict[str, Any]:
        code = (
            "import importlib.util, json, numpy, torch; there = torch.cuda.is_available(); print(json.dumps({"
            "'torch': torch.__version__, 'cuda': torch.version.cuda, 'numpy': numpy.__version__,"
            "'jax': importlib.util.find_spec('jax') is not None,"
            "'gpu': torch.cuda.get_device_name() if there else None,"
            "'capability': torch.cuda.get_device_capability() if there else None,"
            "'memory_bytes': torch.cuda.get_device_properties(0).total_memory if there else None,"
            "'cudnn': torch.backends.cudnn.version() if there else None}))"
        )
        said: dict[str, Any] = json.loads(self.carried_out([self.python, "-c", code]).splitlines()[-1])
        return said

    def carried_out(self, command: list[str], **more: str) -> str:
        """The output of a command. Raises Failed with its last lines, and NotChecked where the time does not suffice."""
        timeout_s = min(LONGEST_S, max(0.0, self.ends - time.monotonic()))
        try:
            done = subprocess.run(
                command, cwd=ROOT, env={**self.environ, **more}, capture_output=True, text=True, timeout=timeout_s
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            if isinstance(error, subprocess.TimeoutExpired) and timeout_s < LONGEST_S:
                raise NotChecked("it was given up when the time was over") from None
            raise Failed(f"{command[0]}: {error}") from None
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise Failed(" ".join(lines[-3:])[:400] or f"exit code {done.returncode}")
        return done.stdout

    def harness(
        self, *arguments: str, backend: str = "pytorch", device: str | None = None, **more: str
    ) -> dict[str, Any]:
        """The record of a run, in which each of its checks has passed; otherwise there is none."""
        command = [self.core, "-m", "harness", *arguments, "--backend", backend, "--env", self.python, "--json"]
        command += ["--site", "local", "--device", device or self.device, "--repeats", "1", "--force"]
        command += ["--output", str(self.output / "runs")]
        record: dict[str, Any] = json.loads(self.carried_out(command, **more))
        return record

    def visible_twice(self) -> dict[str, str]:
        """The GPU for each of two processes, or no GPU for CPUs. Raises NotChecked."""
        if self.alone:
            raise NotChecked("the GPU's compute mode is exclusive: it takes one process at a time")
        return {"CUDA_VISIBLE_DEVICES": f"{self.visible},{self.visible}"} if self.device == "cuda" else {}


def core(named: str | None, python: str) -> str:
    """A Python for harness itself: the one that was named, PYTHON, this one, or one on PATH. Raises SystemExit."""
    for candidate in [named] if named else [python, sys.executable, *(f"python{version}" for version in PYTHONS)]:
        if (path := shutil.which(candidate)) and version_of(path) in PYTHONS:
            return path
    sys.exit(
        f"gpu-check: harness itself runs on Python {', '.join(PYTHONS)}, and "
        f"{named or f'{python} is {version_of(python)} with none of them on PATH'}: give --core PATH"
    )


def version_of(python: str) -> str:
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "no Python that runs"


def fill(options: argparse.Namespace) -> None:
    """Download the wheels, for each Python that harness may run on, and print what they are."""
    import tomllib

    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed = [wanted for wanted in dependencies if re.match(r"[\w-]+", wanted)[0] in NEEDED]  # type: ignore[index]
    for version in PYTHONS:
        folder = options.wheels / version
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary", ":all:", "--python-version", version, "--dest", str(folder)]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        subprocess.run([*command, *needed], check=True)
    wheels = sorted(options.wheels.glob("*/*.whl"))
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 1e6:6.2f} MB  {wheel.relative_to(options.wheels)}")
    print(f"{sum(wheel.stat().st_size for wheel in wheels) / 1e6:6.2f} MB  in {options.wheels}")


def unpacked(machine: Machine, options: argparse.Namespace) -> str:
    """The folder of the wheels for PYTHON, unpacked: they are zip files with what is imported. "" if --core has all."""
    if (
        subprocess.run([machine.core, "-c", f"import numpy, {', '.join(IMPORTED)}"], capture_output=True).returncode
        == 0
    ):
        return ""
    version = version_of(machine.core)
    if version != version_of(machine.python):
        sys.exit(
            f"gpu-check: {machine.core} lacks one of numpy, {', '.join(IMPORTED)}, and the wheels are for {machine.python}"
        )
    wheels = sorted((options.wheels / version).glob("*.whl"))
    if not wheels:
        sys.exit(
            f"gpu-check: no wheels in {options.wheels / version}: `make gpu-wheels` fills it where there is a network"
        )
    folder: Path = options.output / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(folder)
    return str(folder)


SMALL = ("--model", "pointwise", "--batch-size", "2", "--image-size", "32", "--threads", "1")
FEW_STEPS = ("run", "--warmup", "2", "--steps", "5")
RESNET50 = ("--model", "resnet50", "--steps", "100", "--batch-size")


class Checks:
    """The checks of a machine, each in a method. Batches are halved until they fit into the GPU's memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.large = machine.device == "cuda"
        called = (machine.torch["gpu"] or "").split()
        whole = not {"MIG", "PCIe", "NVL"} & set(called)  # the bars are of the boards with the most power
        self.bar_img_per_s, batch = next((bar for name, bar in BARS.items() if name in called and whole), (0.0, 256))
        room = machine.torch["memory_bytes"] or ROOM
        self.halved = 2 ** sum(room * 2**times < ROOM for times in range(4))
        self.batch = batch // self.halved
        self.fast = (*RESNET50, str(self.batch), "--precision", "fp16")
        self.records: dict[str, dict[str, Any]] = {}  # that several checks look at: "cpu" and "fast"
        self.lock = Lock()  # of the record of the CPU

    def all(self) -> list[Check]:
        """Checks of which no time counts first, in the order in which a machine's time is best spent."""
        return [
            Check("pytorch over nccl, fp32, same losses as a CPU", True, partial(self.parity, "fp32")),
            Check("pytorch, two processes over gloo, bytes", False, self.two_processes),
            *(Check(f"{each}, losses", each == "tf32", partial(self.parity, each)) for each in ("tf32", "amp", "fp16")),
            Check("cuda graphs, losses", True, partial(self.parity, "fp16", "--cuda-graphs")),
            Check("compile, losses", True, partial(self.parity, "fp16", "--compile")),
            Check("kernel allreduce over gloo", False, partial(self.kernel, "allreduce")),
            *(Check(f"kernel {name}", False, partial(self.kernel, name)) for name in ("matmul", "cg", "fft")),
            Check("jpeg input", False, self.jpeg, timed=True),
            Check("speed: fp16 against the bar", True, self.against_bar, timed=True),
            Check("clock of the GPU against the host's", True, self.clock, timed=True),
            Check("energy by two ways", True, self.energy, timed=True),
            Check("speed: cuda graphs", True, partial(self.speed, *self.fast, "--cuda-graphs"), timed=True),
            Check("speed: compile", True, partial(self.speed, *self.fast, "--compile"), timed=True),
            *[Check("jax over nccl, losses and speed", True, self.jax, timed=True)] * self.machine.torch["jax"],
            Check("speed: against a plain script, in turn", True, self.against_peer, timed=True),
            *(
                Check(f"{model} {precision}", True, partial(self.of_model, model, precision), timed=True)
                for model in ("resnet50", "inception3")
                for precision in ("fp32", "tf32", "amp")
            ),
        ]

    def speed(self, *arguments: str, **more: Any) -> Outcome:
        """Img/s of a training by itself."""
        return self.figures_of(self.machine.harness("run", "--warmup", "20", *arguments, **more))

    def figures_of(self, record: dict[str, Any]) -> Outcome:
        """Img/s of a record, with the reasons why the GPU slowed down."""
        (img_per_s,), evidence = record["derived"]["img_per_s"]["values"], ranks(record)[0]["evidence"]
        slowed = (evidence.get("gpu") or {}).get("slowed") or {}
        said = f"{img_per_s:.1f} img/s" + "".join(f", THROTTLED: {reason}" for reason in slowed)
        return said, {"img_per_s": img_per_s, "gpu": evidence.get("gpu"), "transport": evidence["transport"]}

    def require(self, precision: str) -> None:
        """Raises NotChecked where the GPU lacks a precision."""
        if precision in ("tf32", "amp") and self.large and tuple(self.machine.torch["capability"]) < (8, 0):
            raise NotChecked(f"{self.machine.torch['gpu']} has neither TF32 nor bfloat16")

    def of_model(self, model: str, precision: str) -> Outcome:
        """Img/s of a model in a precision, at a usual batch."""
        self.require(precision)
        size = (32 if precision == "fp32" else 128) // self.halved
        return self.speed("--model", model, "--precision", precision, "--batch-size", str(size), "--steps", "60")

    def against_bar(self) -> Outcome:
        """Img/s of ResNet-50 with mixed precision, which must reach what others published."""
        self.records["fast"] = self.machine.harness("run", "--warmup", "20", *self.fast)
        said, figures = self.figures_of(self.records["fast"])
        if not self.bar_img_per_s:
            return f"{said} at batch {self.batch}; there is no bar for {self.machine.torch['gpu']}", figures
        said = f"{said} at batch {self.batch}, bar {self.bar_img_per_s:.0f}"
        if figures["img_per_s"] < self.bar_img_per_s:
            raise Failed(said)
        return said, {**figures, "bar": self.bar_img_per_s}

    def against_peer(self) -> Outcome:
        """Img/s over those of a plain PyTorch script, in turn, which must reach ``PEER_BAR``."""
        rounds = []
        for _ in range(2):
            record = self.machine.harness("run", "--warmup", "20", *self.fast, "--steps", "50")
            rounds.append((record["derived"]["img_per_s"]["mean"], self.plain_script()))
        ratios = sorted(ours / theirs for ours, theirs in rounds)
        said = f"{ratios[0]:.3f} and {ratios[1]:.3f} × the plain script, bar {PEER_BAR:.2f}"
        if ratios[0] < PEER_BAR:
            raise Failed(said)
        turned = self.plain_script("--channels-last")
        return f"{said}; {rounds[-1][0] / turned:.3f} × it with channels-last", {"rounds": rounds, "turned": turned}

    def plain_script(self, *more: str) -> float:
        """Img/s that a plain PyTorch script prints."""
        command = [self.machine.python, "benchmarks/plain_ddp.py", "--rank", "0", "--world", "1", "--port", free_port()]
        command += ["--device", "cuda", "--precision", "fp16", "--batch-size", str(self.batch), "--warmup", "20", *more]
        said = self.machine.carried_out([*command, "--steps", "50"], CUDA_VISIBLE_DEVICES=self.machine.visible)
        return float(TOTAL.findall(said)[0])

    def clock(self) -> Outcome:
        """How far the GPU's clock and the host's are apart, and how long a mark takes."""
        if "fast" not in self.records:
            raise NotChecked("the run with mixed precision, whose times it compares, is not there")
        rank = ranks(self.records["fast"])[0]
        apart = abs(rank["marks_s"][-1] - rank["finished_s"]) / rank["finished_s"]
        code = (
            "import time, torch; events = [torch.cuda.Event(enable_timing=True) for _ in range(20000)]\n"
            "events[0].record(); torch.cuda.synchronize(); began = time.perf_counter()\n"
            "for event in events: event.record()\n"
            "torch.cuda.synchronize(); print((time.perf_counter() - began) / 20000)"
        )
        mark_s = float(
            self.machine.carried_out([self.machine.python, "-c", code], CUDA_VISIBLE_DEVICES=self.machine.visible)
        )
        share = mark_s / (rank["finished_s"] / self.records["fast"]["spec"]["steps"])
        said = f"the GPU's clock and the host's differ by {apart:.4%}, a mark takes {share:.4%} of a step"
        if max(apart, share) > CLOCK_LIMIT:
            raise Failed(f"{said}; limit {CLOCK_LIMIT:.1%}")
        return said, {"apart": apart, "mark_s": mark_s}

    def energy(self) -> Outcome:
        """Watts by NVML's counter of joules beside those that nvidia-smi shows."""
        if "fast" not in self.records:
            raise NotChecked("the run with mixed precision, whose energy it compares, is not there")
        derived, seen = self.records["fast"]["derived"], ranks(self.records["fast"])[0]["evidence"].get("gpu") or {}
        joules = [part["joules_per_image"]["mean"] for part in derived["energy"]["parts"] if part["source"] == "nvml"]
        if not joules or "watts" not in seen:
            raise NotChecked("; ".join(derived["energy"]["notes"]) or "nvidia-smi shows no power")
        counted, drawn = joules[0] * derived["img_per_s"]["mean"], seen["watts"][1]
        said = f"{joules[0]:.3g} J/img, {counted:.0f} W by NVML's counter, {drawn:.0f} W (median) by its power"
        if abs(counted / drawn - 1) > ENERGY_LIMIT:
            raise Failed(f"{said}; limit {ENERGY_LIMIT:.0%}")
        return said, {"joules_per_image": joules[0], "counted_w": counted, "drawn_w": drawn}

    def parity(self, precision: str, *more: str, backend: str = "pytorch") -> Outcome:
        """How far losses are from a CPU's in float32."""
        self.of_model = ["--model", "resnet50", "--batch-size", "8", "--image-size", "64"] if self.large else SMALL
        run = ["run", *self.of_model, "--seed", "3", "--warmup", "12", "--steps", "2"]
        self.require(precision)
        with self.lock:
            if "cpu" not in self.records:
                self.records["cpu"] = self.machine.harness(*run, device="cpu")
        record = self.machine.harness(*run, "--precision", precision, *more, backend=backend)
        cpu, other = (ranks(each)[0]["evidence"]["losses"] for each in (self.records["cpu"], record))
        apart = max(abs(one - self.two_processes) / abs(one) for one, self.two_processes in zip(cpu, other))  # noqa: B905 - Python 3.9
        said = f"losses of {len(other)} steps are within {apart:.1e} of the CPU's in float32"
        if len(cpu) != len(other) or not apart <= LOSSES[precision]:
            raise Failed(f"{said}; limit {LOSSES[precision]:.0e}")
        return said, {"cpu": cpu, "other": other}

    def two_processes(self) -> Outcome:
        """Bytes that two processes send over Gloo, beside the size of the model."""
        sizes = ["--model", "resnet50", "--batch-size", "16"] if self.large else SMALL
        record = self.machine.harness(
            *FEW_STEPS, *sizes, "--nodes", "2", "--transport", "gloo", **self.machine.visible_twice()
        )
        model_bytes = json.loads(
            self.machine.carried_out(
                [
                    self.machine.core,
                    "-c",
                    f"from harness import models; print(models.specification({sizes[1]!r}).bytes)",
                ]
            )
        )
        # An allreduce over N workers: each sends 2(N − 1)/N times the model, which is once for two.
        sent = record["seen"]["sent_bytes_per_step"]
        if sent is None:
            raise NotChecked("the kernel does not count the bytes of sockets")
        said = (
            f"{sent / 1e6:.3f} MB sent per step and worker, {model_bytes / 1e6:.3f} MB expected; replicas are the same"
        )
        if abs(sent / model_bytes - 1) > BYTES_LIMIT:
            raise Failed(said)
        return said, {"sent_bytes_per_step": sent, "expected": model_bytes}

    def jpeg(self) -> Outcome:
        """Img/s from JPEG files."""
        folder = self.machine.output / "images"
        shutil.rmtree(folder, ignore_errors=True)
        count, pixels = (256, (500, 375)) if self.large else (32, (64, 48))
        code = "from pathlib import Path; from harness.datasets.make import make; "
        code += f"make(Path({str(folder)!r}), {count}, 4, {pixels}, 1)"
        self.machine.carried_out([self.machine.core, "-c", code])
        if self.large:
            return self.speed("--data", str(folder), *RESNET50, str(128 // self.halved), "--precision", "fp16")
        record = self.machine.harness(*FEW_STEPS, *SMALL, "--data", str(folder), "--data-threads", "1")
        return f"{record['derived']['img_per_s']['mean']:.1f} img/s from JPEG files", {}

    def kernel(self, name: str) -> Outcome:
        """Whether a kernel gets right results."""
        two_ranks = name == "allreduce"
        more = self.machine.visible_twice() if two_ranks else {}
        arguments = ["--nodes", "2", "--transport", "gloo", "--bytes", "64KiB,1MiB"] if two_ranks else []
        record = self.machine.harness("kernel", name, "--warmup", "2", "--steps", "10", *arguments, **more)
        return f"right results for {len(record['derived'])} sizes", {"derived": record["derived"]}

    def jax(self) -> Outcome:
        """How far JAX's losses are from a CPU's, and its img/s."""
        try:
            self.machine.carried_out([self.machine.python, "-c", "import jax; jax.devices('cuda')"])
        except Failed as reason:
            raise NotChecked(f"{self.machine.python} has no JAX that sees the GPU: {reason}") from None
        self.require("tf32")
        said, figures = self.parity("fp32", backend="jax")
        fastest, more = self.speed(*RESNET50, str(self.batch), "--precision", "tf32", backend="jax")
        return f"{said}; ResNet-50 in tf32 at batch {self.batch}: {fastest}", {**figures, **more}


def ranks(record: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = record["repeats"][0]["ranks"]
    return found


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def main() -> int:
    """Make the checks, print each as it ends, write the JSON file, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default=sys.executable, help="the Python with PyTorch  [default: this one]")
    parser.add_argument("--core", help="a Python 3.11 to 3.13 for harness itself  [default: the first there is]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only what takes no GPU")
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels", metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-check", metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=450.0, metavar="SECONDS")
    parser.add_argument(
        "--only", type=re.compile, default=re.compile(""), metavar="PATTERN", help="checks of such names"
    )
    parser.add_argument("--fill", action="store_true", help="download the wheels, and check nothing")
    options = parser.parse_args()
    options.wheels, options.output = options.wheels.absolute(), options.output.absolute()
    if options.fill:
        fill(options)
        return 0
    began = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        machine = Machine(options)
    except (Failed, NotChecked) as error:
        sys.exit(f"gpu-check: {options.env}: no PyTorch with NumPy: {error}")
    said = machine.torch
    print(f"PyTorch {said['torch']}, CUDA {said['cuda']}, GPU {said['gpu']}; harness on {machine.core}\n", flush=True)

    def result(check: Check) -> dict[str, Any]:
        started, figures = time.monotonic(), {}
        try:
            if check.gpu and machine.device != "cuda":
                raise NotChecked(f"PyTorch {said['torch']} of {machine.python} sees no GPU")
            if started - began > options.limit:
                raise NotChecked(f"the {options.limit:g} s of --limit were over")
            words, figures = check.make()
            state = "passed"
        except NotChecked as reason:
            state, words = "not checked", str(reason)
        except Failed as reason:
            state, words = "FAILED", str(reason)
        except Exception as error:  # what the others have found is not lost with it
            traceback.print_exc()
            state, words = "FAILED", repr(error)
        took_s = time.monotonic() - started
        # One write with the end of the line in it: other checks print meanwhile.
        print(f"{state:11}  {took_s:5.1f} s  {check.name:46}  {words}\n", end="", flush=True)
        return {"check": check.name, "state": state, "says": words, "took_s": took_s, "figures": figures}

    wanted = [
        check
        for check in Checks(machine).all()
        if not (check.gpu and options.device == "cpu") and options.only.search(check.name)
    ]
    with ThreadPoolExecutor(1 if machine.alone else 4) as pool:
        results = list(pool.map(result, (check for check in wanted if not check.timed)))
    results += [result(check) for check in wanted if check.timed]
    passed = sum(each["state"] == "passed" for each in results)
    took_s = time.monotonic() - began
    file = options.output / "gpu-check.json"
    file.write_text(json.dumps({"machine": said, "took_s": took_s, "checks": results}, indent=1) + "\n")
    print(f"\n{passed} of {len(results)} checks passed, in {took_s:.0f} s; {file}")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
