"""harness as a ReFrame performance test: one test for each backend and number of nodes (ReFrame 4.7 or later).

What is measured is in ``harness_options``, where in ``site``, what counts as good in ``img_per_s`` and ``tolerance``.
All are set with ``-S``; README.md shows how.
"""

import json
import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function, variable


@rfm.simple_test
class HarnessCheck(rfm.RunOnlyRegressionTest):
    """Measure one backend on ``nodes`` nodes, and hold its img/s against the user's own reference."""

    backend = parameter(
        ["pytorch", "caffe2", "horovod", "multi_worker_mirrored", "distributed_replicated", "parameter_server"]
    )
    nodes = parameter([1, 2], type=int)

    # What starts harness: a path, or `python -m harness`.
    harness = variable(str, value="harness")
    harness_options = variable(
        str, value="--model resnet50 --batch-size 2 --image-size 32 --warmup 1 --steps 3 --repeats 2"
    )
    # As `harness run --site` takes it: SYSTEM, SYSTEM:PARTITION or a file. Empty: the machine that ReFrame runs on.
    site = variable(str, value="")
    # The reference of each test, BACKEND-NODES:IMG_PER_S,…; a test without one reports its figures and is not judged.
    img_per_s = variable(typ.Dict[str, float], value={})
    # The share by which a run may be slower than its reference. Faster is never wrong.
    tolerance = variable(float, value=0.05)

    descr = "training throughput"
    valid_systems = ["*"]  # noqa: RUF012 (how ReFrame declares them)
    valid_prog_environs = ["*"]  # noqa: RUF012
    # harness submits its own job and waits for it, so ReFrame only has to start it, whatever scheduler a partition has.
    local = True

    @run_before("run")
    def measure(self):
        """Put the command together."""
        self.executable = self.harness
        self.executable_opts = ["run", "--backend", self.backend, "--nodes", str(self.nodes)]
        self.executable_opts += [shlex.quote(option) for option in shlex.split(self.harness_options)]
        self.executable_opts += ["--output", "runs", "--quiet"]
        if self.site:
            self.executable_opts += ["--site", shlex.quote(self.site)]
        self.keep_files = ["runs"]

    @sanity_function
    def record_is_completed(self):
        """Only a run that passed all of harness's checks has a number; otherwise say why there is none."""
        records = sorted(Path("runs").glob("*/record.json"))
        if not records:  # refused before anything ran, with the reason on stderr
            return sn.assert_true(False, msg=Path(str(self.stderr)).read_text().strip() or "harness wrote no record")
        record = json.loads(records[-1].read_text())
        return sn.assert_eq(record["status"], "completed", msg=f"{record['status']}: {record['reason']}")

    @performance_function("img/s")
    def throughput(self):
        """Images per second over all workers: the mean of the repeats."""
        return sn.extractsingle(r"^total images/sec: (\S+)", self.stdout, 1, float)

    @performance_function("ms")
    def step_p50(self):
        """The median step time over all ranks and repeats."""
        return sn.extractsingle(r"step time +p50 (\S+) ms", self.stdout, 1, float)

    @run_before("performance")
    def hold_against_the_reference(self):
        """Judge the throughput where there is a reference; the step time is only reported."""
        expected = self.img_per_s.get(f"{self.backend}-{self.nodes}")
        if expected is not None:
            self.reference = {"*": {"throughput": (expected, -self.tolerance, None, "img/s")}}
