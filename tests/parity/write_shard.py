"""Write a TFRecord shard with TensorFlow, and all the features that its own programs for ImageNet write.

    python write_shard.py FILE

On stdin is JSON: for each image its name, its bytes in base64, and its label.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import tensorflow as tf


def feature(*values: Any) -> tf.train.Feature:
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def main() -> None:
    with tf.io.TFRecordWriter(sys.argv[1]) as shard:
        for name, encoded, label in json.load(sys.stdin):
            features = {
                "image/height": feature(40),
                "image/width": feature(500),
                "image/colorspace": feature(b"RGB"),
                "image/channels": feature(3),
                "image/class/label": feature(label),
                "image/class/synset": feature(b"n01440764"),
                "image/class/text": feature(b"tench, Tinca tinca"),
                **{f"image/object/bbox/{side}": feature(0.25, 0.75) for side in ("xmin", "xmax", "ymin", "ymax")},
                "image/object/bbox/label": feature(label, label),
                "image/format": feature(b"JPEG"),
                "image/filename": feature(name.encode()),
                "image/encoded": feature(base64.b64decode(encoded)),
            }
            shard.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


if __name__ == "__main__":
    main()
