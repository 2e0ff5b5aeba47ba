"""Caffe2, beside the framework: its stock ``data_parallel_model``, one shard per rank, on IDEEP."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, List, Sequence

from caffe2.python import model_helper, workspace

from harness.backends.caffe2.trainer import world
from harness.backends.caffe2.trainer.traced import traced
from harness.worker.frameworks.caffe2 import Caffe2Trainer, plain_errors
from harness.worker.notes import Notes
from harness.worker.trainer import State


class DataParallelTrainer(Caffe2Trainer):
    """The nets of ``data_parallel_model``, and sums over all ranks in nets of their own."""

    def setup(self) -> None:
        over_gloo = self._job.spec["transport"] == "gloo"
        self._world: world.RankWorld = world.Gloo(self._job) if over_gloo else world.Mpi(self._job)
        self._sum = lru_cache(maxsize=None)(partial(world.AllreduceNet, self._world))
        model = model_helper.ModelHelper(name="training")
        world.data_parallel_model.Parallelize(
            model,
            input_builder_fun=self.add_inputs,
            forward_pass_builder_fun=self.add_model,
            param_update_builder_fun=self.add_updates,
            devices=[0],
            rendezvous=self._world.rendezvous if self._job.world_size > 1 else None,
            net_type=self._job.spec["options"]["net_type"],
            broadcast_computed_params=False,  # batch norms' statistics stay each worker's own
            max_concurrent_distributed_ops=self._world.at_once,
            ideep=True,
        )
        _compute_in_turn(model.net)
        for net in (model.param_init_net, model.net):
            self._world.adapt(net)
        with plain_errors():
            workspace.RunNetOnce(model.param_init_net)
            self.load()
            workspace.CreateNet(model.net)
            if self._job.training:
                workspace.CreateNet(self.inference())
        self._net = model.net

    def total(self, numbers: Sequence[float]) -> List[float]:
        """The sums, by a net for as many numbers: its blobs have one length."""
        return self._sum(len(numbers)).total(numbers)

    def state(self) -> State:
        return self._state(self._world_size, self._world.transport, **self._world.details)

    def trace(self, notes: Notes) -> None:
        self._net = traced(self._net, notes, self._specification, self._scope, with_layers=not self._job.emulation)

    def close(self) -> None:
        self._world.close()


create = DataParallelTrainer


def _compute_in_turn(net: Any) -> None:
    """Let what computes in a dag wait for what computed before it, so that only allreduces are beside it.

    A dag runs all that is ready at once, each operator on ``threads`` threads: more than a worker may use, and more than
    is good for it.
    """
    before = None
    for operator in net.Proto().op:
        if operator.engine != "GLOO":
            if before is not None:
                operator.control_input.append(before)
            before = operator.output[0]
