"""Read image batches inside a framework's environment: cases in as JSON on stdin, what was seen out as JSON on stdout.

    python input_stream.py torch|tensorflow < cases.json

A case holds the arguments of ``batches`` / ``dataset`` with ``index`` as a file, the number of ``batches`` to read, and
``eager`` (TensorFlow only). What was seen: per batch its labels and a digest of its pixels; of the last one shape,
dtypes, range and means per channel; or the error; and what TensorFlow's ``find_bad_image`` finds in two epochs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.inputs.index import DataError, ImageIndex, read


def torch_batches(index: ImageIndex, arguments: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    import torch

    from harness.inputs.torch import batches

    for images, labels in batches(index, **arguments):
        layout = {
            "shape": list(images.shape),
            "dtypes": [str(images.dtype), str(labels.dtype)],
            "channels_last": images.is_contiguous(memory_format=torch.channels_last),
        }
        yield images.permute(0, 2, 3, 1).numpy(), labels.numpy(), layout


def tensorflow_batches(index: ImageIndex, arguments: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    import tensorflow as tf

    from harness.inputs.tensorflow import dataset

    arguments["threads"] = max(arguments.pop("workers"), 1)
    if arguments.pop("eager", False):
        for images, labels in dataset(index, **arguments):
            yield images.numpy(), labels.numpy(), tensorflow_layout(images, labels)
        return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset(index, **arguments))
        images, labels = iterator.get_next()
        session.run(iterator.initializer)
        while True:
            yield (*session.run([images, labels]), tensorflow_layout(images, labels))


def tensorflow_layout(images: Any, labels: Any) -> dict[str, Any]:
    return {"shape": images.shape.as_list(), "dtypes": [images.dtype.name, labels.dtype.name]}


def see(framework: str, case: dict[str, Any]) -> dict[str, Any]:
    index, count = read(case.pop("index")), case.pop("batches")
    stream = (torch_batches if framework == "torch" else tensorflow_batches)(index, dict(case))
    seen: dict[str, Any] = {"labels": [], "digests": []}
    try:
        for _ in range(count):
            images, labels, layout = next(stream)
            seen["labels"] += labels.tolist()
            seen["digests"].append(hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest())
            seen.update(layout, range=[float(images.min()), float(images.max())])
            seen["means"] = images.mean((0, 1, 2)).tolist()
    except Exception as error:
        seen["error"] = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, DataError):
            return seen
    if framework == "tensorflow":
        from harness.inputs.tensorflow import find_bad_image

        bad = find_bad_image(index, case["rank"], case["world"], case["seed"], limit=2 * len(index))
        seen["found"] = bad and str(bad)
    return seen


if __name__ == "__main__":
    json.dump([see(sys.argv[1], case) for case in json.load(sys.stdin)], sys.stdout)
