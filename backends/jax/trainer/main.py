"""JAX, beside the framework: one process for each device. XLA averages gradients over Gloo (CPUs) or NCCL (GPUs)."""

from __future__ import annotations

import math
import socket
from typing import Any

import jax
from jaxlib import _jax

from harness.worker.frameworks.jax import JaxTrainer
from harness.worker.job import Job
from harness.worker.network import interface_of, nccl, nccl_meets_on
from harness.worker.trainer import State


class JaxDistributedTrainer(JaxTrainer):
    """One rank of a job of ``jax.distributed``."""

    def setup(self) -> None:
        address = self._job.process["address"]
        self._gloo = None if self._cuda else Gloo(address)
        if self._cuda:
            nccl_meets_on(address, self._job.repeat_dir / "logs")
        join(self._job)
        self.build()

    def state(self) -> State:
        return self._state(self._world_size, self._gloo.carries if self._gloo else nccl(""))

    def close(self) -> None:
        jax.distributed.shutdown()


create = JaxDistributedTrainer


class Gloo:
    """Takes the place of the function with which JAX makes Gloo's collectives, to bind them to this process's address.

    JAX has no option for it: by itself Gloo listens where the host's name leads, which may be another network or none.
    ``carries`` says what JAX has made.
    """

    def __init__(self, address: str) -> None:
        self.carries = "nothing"
        self._address, self._make = address, _jax.make_gloo_tcp_collectives
        _jax.make_gloo_tcp_collectives = self

    def __call__(self, **arguments: Any) -> Any:
        collectives = self._make(hostname=socket.gethostbyname(self._address), **arguments)
        self.carries = f"gloo on {interface_of(self._address)}"
        return collectives


def join(job: Job) -> None:
    """Meet the others at the first worker, whose coordinator listens on the planned address alone."""
    first = job.processes("worker")[0]
    coordinator = f"{first['address']}:{first['port']}"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    jax.distributed.initialize(
        coordinator,
        num_processes=job.world_size,
        process_id=job.rank,
        local_device_ids=[0],  # with all four JAX looks for no batch system of its own
        initialization_timeout=math.ceil(job.spec["timeout_s"]),
        coordinator_bind_address=coordinator,
    )
