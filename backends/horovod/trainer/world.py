"""Horovod's world, for either framework: joining it over MPI or Gloo, and what it turned out to be."""

from __future__ import annotations

import os
import threading
from typing import Any

import horovod

from harness.worker.job import Job
from harness.worker.mpi import check_mpi_world, mpi_version
from harness.worker.network import interface_of, nccl, nccl_meets_on, wait_for_listener


def join(job: Job, hvd: Any) -> None:
    """``hvd.init()`` over the transport of the spec, for either framework.

    Raises RuntimeError if MPI has other ranks, or if Horovod was compiled to send what is on GPUs by something else.
    """
    by_nccl = job.spec["transport"] == "nccl"
    if job.spec["device"] == "cuda" and by_nccl != bool(hvd.nccl_built()):
        built = "for" if hvd.nccl_built() else "without"
        raise RuntimeError(f"--transport {job.spec['transport']}: this Horovod was compiled {built} NCCL")
    gloo = job.spec["transport"] == "gloo"
    os.environ["HOROVOD_CONTROLLER"] = os.environ["HOROVOD_CPU_OPERATIONS"] = "gloo" if gloo else "mpi"
    if gloo:
        _rendezvous(job)
    if by_nccl:
        nccl_meets_on(job.process["address"], job.repeat_dir / "logs")
    hvd.init()
    if not gloo:
        check_mpi_world(hvd.rank(), hvd.size(), job)


def transport(job: Job, hvd: Any) -> str:
    """The carrier of the gradients, as Horovod and the libraries in this process name it now."""
    if job.spec["transport"] == "nccl":
        carrier = nccl(str(hvd.nccl_built()))
    else:
        carrier = mpi_version() if hvd.mpi_enabled() else f"gloo on {interface_of(job.process['address'])}"
    return f"{carrier} in Horovod {horovod.__version__}"


def _rendezvous(job: Job) -> None:
    """Say who this rank is, where, and where it meets the others, as ``horovodrun`` would. On rank 0 let them meet."""
    workers = job.processes("worker")
    first, here = workers[0], job.process
    node = [process["rank"] for process in workers if process["node"] == here["node"]]
    across = [process["rank"] for process in workers if process["local_rank"] == here["local_rank"]]
    os.environ.update(
        HOROVOD_GLOO_RENDEZVOUS_ADDR=first["address"],
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(first["port"]),
        HOROVOD_GLOO_IFACE=interface_of(here["address"]),
        HOROVOD_GLOO_TIMEOUT_SECONDS=str(int(job.spec["timeout_s"])),
        HOROVOD_HOSTNAME=here["host"],
        HOROVOD_RANK=str(job.rank),
        HOROVOD_SIZE=str(job.world_size),
        HOROVOD_LOCAL_RANK=str(here["local_rank"]),
        HOROVOD_LOCAL_SIZE=str(len(node)),
        HOROVOD_CROSS_RANK=str(across.index(job.rank)),
        HOROVOD_CROSS_SIZE=str(len(across)),
    )
    if job.rank != 0:  # Horovod gives up on a server that is not there yet
        wait_for_listener(first["address"], first["port"], job.spec["timeout_s"])
        return
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    # On this rank's address alone; Horovod's launcher binds it to every interface.
    server = RendezvousHTTPServer((here["address"], here["port"]), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
