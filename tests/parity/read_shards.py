"""Read TFRecord shards with TensorFlow alone, as its own programs for ImageNet do: file patterns in, JSON out.

python read_shards.py PATTERN
"""

from __future__ import annotations

import base64
import json
import sys

import tensorflow as tf

INTEGERS = ["image/height", "image/width", "image/channels", "image/class/label"]
BYTES = [
    "image/colorspace",
    "image/class/synset",
    "image/class/text",
    "image/format",
    "image/filename",
    "image/encoded",
]
FEATURES = {
    **{key: tf.io.FixedLenFeature([], tf.int64) for key in INTEGERS},
    **{key: tf.io.FixedLenFeature([], tf.string) for key in BYTES},
    **{f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in ("xmin", "xmax", "ymin", "ymax")},
    "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
}


def main() -> None:
    found = []
    for record in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(sys.argv[1]))):
        example = tf.io.parse_single_example(record, FEATURES)
        one = {key: int(example[key]) for key in INTEGERS}
        one.update((key, base64.b64encode(example[key].numpy()).decode()) for key in BYTES)
        one["boxes"] = sum(int(tf.size(example[key].values)) for key in FEATURES if "bbox" in key)
        one["decoded"] = tf.io.decode_jpeg(example["image/encoded"], channels=3).shape.as_list()
        found.append(one)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
