"""tf_cnn_benchmarks on an emulated device: its variables, servers, barriers and loop, with our layers that wait.

    python benchmarks/emulated_peer.py FOLDER STEP_S FORWARD_SHARE DILATION RANK WORKERS [flags of tf_cnn_benchmarks]

``alternate.py --device emulated:p100`` starts it, with the FOLDER of tf_cnn_benchmarks.py. The network has the same tensors
in the same order as ours, each a variable that tf_cnn_benchmarks places and reads as those of its own networks.
"""

import sys
from importlib import import_module
from types import SimpleNamespace

import tensorflow.compat.v1 as tf
from absl import app, flags

from harness import models
from harness.worker.emulation.tensorflow import build

STEP_S, FORWARD, DILATION = map(float, sys.argv[2:5])
RANK, WORKERS = map(int, sys.argv[5:7])
sys.path.insert(0, sys.argv[1])
benchmark_cnn, its_flags, its_models = map(import_module, ("benchmark_cnn", "flags", "models.model"))


class Emulated(its_models.CNNModel):
    """A network of harness whose layers only take their time. Its images are of no use, and small."""

    def __init__(self, params):
        super().__init__(params.model, 8, params.batch_size, 0.01, params=params)
        self.set_batch_size(params.batch_size)

    def build_network(self, inputs, phase_train=True, nclass=1001):
        specification = models.specification(self.model_name)
        shapes = {tensor.name: tensor.shape for tensor in specification.tensors}
        job = SimpleNamespace(
            specification=specification,
            emulation={"step_s": STEP_S, "forward_share": FORWARD},
            spec={"dilation": DILATION, "image_size": specification.image_size},
            **{"rank": RANK, "devices": 1, "world_size": WORKERS, "num_classes": nclass},
        )

        def variable(name):
            return tf.convert_to_tensor(tf.get_variable(name, shapes[name], initializer=tf.zeros_initializer()))

        return its_models.BuildNetworkResult(build(job, None, variable, None)[0], None)

    def loss_function(self, inputs, build_network_result):
        _, labels = inputs
        return tf.losses.sparse_softmax_cross_entropy(logits=build_network_result.logits, labels=labels[:1])


def main(_):
    params = benchmark_cnn.setup(benchmark_cnn.make_params_from_flags())
    benchmark = benchmark_cnn.BenchmarkCNN(params, model=Emulated(params))
    benchmark.print_info()
    benchmark.run()


if __name__ == "__main__":
    its_flags.define_flags()
    for name in its_flags.param_specs:
        flags.declare_key_flag(name)
    tf.disable_v2_behavior()
    app.run(main, argv=[sys.argv[0], *sys.argv[7:]])
