"""The ranks' world as Caffe2's nets see it: over Gloo, met in the run directory, or over MPI.

``data_parallel_model`` builds nets for Gloo and for devices of its own. ``adapt`` makes their collective operators right.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Callable, List, Sequence

import numpy as np
from caffe2.python import core, dyndep, workspace

from harness.backends.caffe2.trainer.library import LIBRARY
from harness.models.caffe2_layers import HOST
from harness.worker.frameworks.caffe2 import plain_errors
from harness.worker.job import Job
from harness.worker.mpi import leave, mpi_version, open_mpi_world
from harness.worker.network import interface_of

with redirect_stdout(None):  # prints that a library of Gloo's operators is missing, which are built in
    from caffe2.python import data_parallel_model as data_parallel_model

FOLDER, STORE = "rendezvous", "store"
ALLREDUCE = "Allreduce"  # the type of Caffe2's operators, and the name of those in Python
TAKEN_S = 1.0  # a sum is taken by a thread that may have to wait for a processor
APPEARS_S = 120.0  # for the events of the first rank, which starts when the others do, to be seen by them


class RankWorld:
    """The way in which this rank's nets reach those of the others. ``transport`` names the carrier of the gradients.

    ``rendezvous`` is for data_parallel_model, ``at_once`` the number of allreduces that may be under way at the same time,
    and ``details`` go into the record.
    """

    at_once: int
    adapt_operator: Callable[[Any, Any], None]  # (net, operator): make one collective operator that of this world
    close: Callable[[], None]

    def __init__(self, job: Job, transport: str, store: Any = None, interface: str = "", **details: Any) -> None:
        self.transport, self.details = transport, details
        self.rendezvous = {
            "kv_handler": store,
            "num_shards": job.world_size,
            "shard_id": job.rank,
            "engine": "GLOO",
            "transport": "tcp",
            "interface": interface,
            "exit_nets": None,
        }

    def adapt(self, net: Any) -> None:
        """Make the collective operators of ``net``, built for Gloo, those of this world, on arrays in host memory."""
        for operator in [operator for operator in net.Proto().op if operator.engine == "GLOO"]:
            self.adapt_operator(net, operator)


class AllreduceNet:
    """Adds ``length`` float32 numbers of all ranks, over a common world of its own. All ranks make theirs together."""

    def __init__(self, world: RankWorld, length: int) -> None:
        name = f"sum_of_{length}"
        meet, self._net = core.Net(f"meet_for_{name}"), core.Net(name)
        common = data_parallel_model._CreateOrCloneCommonWorld(meet, f"{name}_world", world.rendezvous)
        self._mine, self._sum = core.BlobReference(f"{name}_own"), core.BlobReference(f"{name}_sum")
        workspace.FeedBlob(self._mine, np.zeros(length, np.float32), HOST)
        self._net.Copy([self._mine], [self._sum])  # Gloo wants the sum where it was the last time
        self._net.Allreduce([common, self._sum], [self._sum], engine="GLOO")
        for net in (meet, self._net):
            world.adapt(net)
        with plain_errors():
            workspace.RunNetOnce(meet)
            workspace.CreateNet(self._net)

    def total(self, numbers: Sequence[float]) -> List[float]:
        workspace.FeedBlob(self._mine, np.array(numbers, np.float32), HOST)
        with plain_errors():
            workspace.RunNet(self._net)
        return workspace.FetchBlob(self._sum).tolist()


class Gloo(RankWorld):
    """Caffe2's own operators, as data_parallel_model makes them. Raises RuntimeError without a common run directory."""

    at_once = 16  # Caffe2's own default, of which data_parallel_model's pool of threads for one device leaves 11

    def __init__(self, job: Job) -> None:
        interface = interface_of(job.process["address"])
        super().__init__(job, f"gloo on {interface}", STORE, interface)
        self._timeout_ms = int(job.spec["timeout_s"] * 1000)
        first = job.repeat_dir / "events" / "worker-0.jsonl"
        deadline = time.monotonic() + min(APPEARS_S, job.spec["timeout_s"])
        while not first.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{first} of rank 0 is not there: with --transport gloo Caffe2's ranks meet in the run directory, "
                    "which all hosts must share; otherwise use --transport mpi"
                )
            time.sleep(0.1)
        self._folder = job.repeat_dir / FOLDER  # of this repeat alone: in an old one Gloo would wait for those who left
        self._folder.mkdir(exist_ok=True)
        store = core.CreateOperator("FileStoreHandlerCreate", [], [STORE], path=str(self._folder))
        workspace.RunOperatorOnce(store)

    def adapt_operator(self, net: Any, operator: Any) -> None:
        operator.device_option.CopyFrom(HOST)
        for argument in operator.arg:
            if argument.name == "timeout_ms":  # Caffe2's 30 s are less than what a slow machine takes for a step
                argument.i = self._timeout_ms

    def close(self) -> None:
        """Remove the ranks' rendezvous: each rank's files name all others. The sockets end with the process."""
        # Once Gloo has seen that a peer is gone, it does not look whether what the last barrier sums is there already.
        time.sleep(TAKEN_S)
        if self.rendezvous["shard_id"] == 0:
            shutil.rmtree(self._folder, ignore_errors=True)


class Mpi(RankWorld):
    """MPI's world, called by Caffe2's operators or through mpi4py. Raises RuntimeError if it is not the planned one."""

    at_once = 1  # Caffe2's operators hold a lock around MPI: with two orders on two ranks, they would wait for ever

    def __init__(self, job: Job) -> None:
        self._mpi, self._world = open_mpi_world(job)  # for Caffe2's operators, too
        options = job.spec["options"]
        if options["net_type"] != "simple" and self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED:
            raise RuntimeError(
                f"{mpi_version()} takes calls from one thread only, a dag calls from several: --net-type simple"
            )
        library, operators = Path(sys.prefix) / LIBRARY, options["mpi_operators"]
        if operators == "caffe2" and not library.exists():
            raise RuntimeError(
                "--mpi-operators caffe2: this environment was built without them, as there was no C++ compiler: build it "
                "anew with one, or give --mpi-operators mpi4py"
            )
        self._compiled = operators != "mpi4py" and library.exists()
        caller, used = ("in Caffe2", "caffe2") if self._compiled else ("through mpi4py", "mpi4py")
        super().__init__(job, f"{mpi_version()} {caller}", mpi_operators=used)
        if self._compiled:
            dyndep.InitOpsLibrary(str(library))

    def adapt_operator(self, net: Any, operator: Any) -> None:
        if self._compiled:
            operator.device_option.CopyFrom(HOST)
            operator.engine = "MPI"
        elif operator.type.endswith("CommonWorld"):
            net.Proto().op.remove(operator)  # mpi4py's world is there
        else:
            operator.CopyFrom(
                core.CreatePythonOperator(
                    self._broadcast if operator.type == "Broadcast" else self._allreduce,
                    list(operator.input)[1:],
                    list(operator.output),
                    control_input=list(operator.control_input),
                    device_option=HOST,
                    name=operator.type,
                )
            )

    def _broadcast(self, _: List[Any], outputs: List[Any]) -> None:
        self._world.Bcast(outputs[0].data, root=0)

    def _allreduce(self, _: List[Any], outputs: List[Any]) -> None:
        self._world.Allreduce(self._mpi.IN_PLACE, outputs[0].data, op=self._mpi.SUM)

    def close(self) -> None:
        leave(self._mpi)
