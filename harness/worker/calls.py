"""Python functions that TensorFlow's graphs call, run by whichever process runs the graph. Python 3.9.

``tf.numpy_function`` has them run by the process that traced the graph. TensorFlow knows a function by a number, which a
process looks up for itself; so all processes that run a graph have to make the same ones in the same order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, List, Sequence

import tensorflow as tf


@lru_cache(maxsize=None)
def _functions() -> tf.Graph:
    """The graph that keeps them. It has a thread, which may not be there before processes are forked (``fork.py``)."""
    return tf.Graph()


def call(function: Callable[..., Any], inputs: Sequence[Any], types: Sequence[Any]) -> Any:
    """Add to the current graph, and return, the same as ``tf.numpy_function``."""
    with _functions().as_default():
        (registered,) = tf.numpy_function(function, [], [tf.float32])
    return tf.raw_ops.PyFunc(input=inputs, token=registered.op.get_attr("token").decode(), Tout=types)


def numbers() -> List[int]:
    """TensorFlow's numbers of all functions so far, in order."""
    return [int(operation.get_attr("token")[len("pyfunc_") :]) for operation in _functions().get_operations()]
