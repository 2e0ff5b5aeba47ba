"""Read image batches inside a framework's environment: cases in as JSON on stdin, what was seen out as JSON on stdout.

    python input_stream.py torch|tensorflow < cases.json

A case holds the fields of a Reading with ``index`` as a file, the number of ``batches`` to read at most, and for some
``eager`` (TensorFlow only), ``evaluation``, ``keep``, a file for all images, and ``search``. What was seen: of every batch
its labels and a digest of its pixels; of every label the mean colours of its images; of the last batch shape, dtypes, range
and means per channel; or the error; and, for ``search``, what TensorFlow's ``find_bad_image`` finds in two epochs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from harness.worker.inputs.errors import DataError
from harness.worker.inputs.index import read
from harness.worker.inputs.order import ReadingOrder


def torch_batches(reading: ReadingOrder, eager: bool) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    import torch

    from harness.worker.inputs.torch import batches

    for images, labels in batches(reading):
        layout = {
            "shape": list(images.shape),
            "dtypes": [str(images.dtype), str(labels.dtype)],
            "channels_last": images.is_contiguous(memory_format=torch.channels_last),
        }
        yield images.permute(0, 2, 3, 1).numpy(), labels.numpy(), layout


def tensorflow_batches(reading: ReadingOrder, eager: bool) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    import tensorflow as tf

    from harness.worker.inputs.tensorflow import batches

    reading = replace(reading, decoders=max(reading.decoders, 1))
    if eager:
        for images, labels in batches(reading):
            yield images.numpy(), labels.numpy(), tensorflow_layout(images, labels)
        return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(batches(reading))
        images, labels = iterator.get_next()
        session.run(iterator.initializer)
        while True:
            try:
                batch = session.run([images, labels])
            except tf.errors.OutOfRangeError:
                return
            yield (*batch, tensorflow_layout(images, labels))


def tensorflow_layout(images: Any, labels: Any) -> dict[str, Any]:
    return {"shape": images.shape.as_list(), "dtypes": [images.dtype.name, labels.dtype.name]}


def see(framework: str, case: dict[str, Any]) -> dict[str, Any]:
    index, count, keep = read(case.pop("index")), case.pop("batches"), case.pop("keep", None)
    evaluation, eager, search = (case.pop(name, False) for name in ("evaluation", "eager", "search"))
    seen: dict[str, Any] = {"labels": [], "digests": [], "colours": {}}
    kept = []
    try:
        reading = ReadingOrder(index, **(case | ({"seed": None} if evaluation else {})))
        stream = (torch_batches if framework == "torch" else tensorflow_batches)(reading, eager)
        for images, labels, layout in islice(stream, count):
            seen["labels"] += labels.tolist()
            seen["digests"].append(hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest())
            seen.update(layout, range=[float(images.min()), float(images.max())])
            seen["means"] = images.mean((0, 1, 2)).tolist()
            for label, colours in zip(labels.tolist(), images.mean((1, 2)).tolist()):  # noqa: B905, which Python 3.9 has not
                seen["colours"].setdefault(label, []).append(colours)
            kept.append(images)
    except Exception as error:
        seen["error"] = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, DataError):
            return seen
    if keep:
        np.save(keep, np.concatenate(kept))
        seen["kept"] = keep
    if framework == "tensorflow" and search:
        from harness.worker.inputs.tensorflow import find_bad_image

        bad = find_bad_image(reading, 2 * len(index))
        seen["found"] = bad and str(bad)
    return seen


if __name__ == "__main__":
    json.dump([see(sys.argv[1], case) for case in json.load(sys.stdin)], sys.stdout)
