"""Checkpoints of a training: one npz file after an epoch, from which any backend can go on. NumPy only; Python 3.9.

A file holds every parameter and batch-norm statistic by its canonical name and layout, with momentum the velocities
(``velocity/NAME``), and as ``history`` the JSON of all epochs so far. Nothing in it is pickled.
"""

from __future__ import annotations

import json
import socket
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple, Union

import numpy as np

from harness.files import whole_file
from harness.models.layers import ModelSpecification

HISTORY = "history"
KEPT = 2  # the last one, and the one before, should the machine stop while the last is being written
Epochs = List[Dict[str, Any]]


class BadCheckpoint(ValueError):
    """Training cannot go on from a checkpoint. The message is one line that names the file."""


def velocity(name: str) -> str:
    return f"velocity/{name}"


def write(folder: Path, values: Mapping[str, np.ndarray], epochs: Epochs) -> Path:
    """Write a checkpoint into ``folder``, whole or not at all, and remove all but the last ``KEPT``. Raises OSError."""
    folder.mkdir(exist_ok=True)
    path = folder / f"epoch-{epochs[-1]['epoch']:04}.npz"
    with whole_file(path) as file:
        np.savez(file, **{HISTORY: np.array(json.dumps(epochs))}, **values)  # type: ignore[arg-type]
    # By the number, not by the text: epoch-10000 comes after epoch-9999.
    for old in sorted(folder.glob("epoch-*.npz"), key=lambda file: int(file.stem[6:]))[:-KEPT]:
        old.unlink()
    return path


def read(
    path: Union[str, Path], specification: ModelSpecification, momentum: float
) -> Tuple[Dict[str, np.ndarray], Epochs]:
    """The state to go on from: float32 values by name, and the epochs so far. Raises BadCheckpoint."""
    shapes = {tensor.name: tensor.shape for tensor in (*specification.tensors, *specification.statistics)}
    if momentum:
        shapes.update({velocity(tensor.name): tensor.shape for tensor in specification.tensors})
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in shapes or name == HISTORY}
    except OSError as error:
        raise BadCheckpoint(f"{path} on {socket.gethostname()}: {error.strerror or error}") from None
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile):
        raise BadCheckpoint(f"{path} is no checkpoint, or was cut off") from None
    for name in (HISTORY, *shapes):
        if name not in arrays:
            raise BadCheckpoint(f"{path} holds no {name}: it is no checkpoint, or of another model or optimizer")
        if name in shapes and arrays[name].shape != shapes[name]:
            raise BadCheckpoint(f"{path}: {name} is {arrays[name].shape}, {specification.name} wants {shapes[name]}")
    return {name: arrays[name].astype(np.float32) for name in shapes}, json.loads(str(arrays[HISTORY]))
