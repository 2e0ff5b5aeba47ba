"""JPEGs for PyTorch: a DataLoader whose workers decode with Pillow. Python 3.9, torch 1.10 and later.

Only the trainer's process knows the index. It sends its workers requests for whole batches, and as requests never end,
neither does the loader: workers live as long as the iterator, and an epoch's tail flows into the next epoch.

Workers come from a fork server, which is a fresh process: forking the trainer itself would copy the locks of its Gloo,
MPI and OpenMP threads in whatever state they are. So the trainer's main module must guard its entry point with
``if __name__ == "__main__"``.
"""

from __future__ import annotations

import itertools
import math
import os
from multiprocessing import get_context, parent_process
from random import Random
from threading import Thread
from typing import Iterator, List, NamedTuple, Tuple, Union

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import DataLoader

from harness.inputs.augmentation import AREA, ASPECT, ATTEMPTS, MEAN, STD
from harness.inputs.index import BadImage, ImageIndex, check_world, order

FORMATS = ("JPEG", "PNG")  # ImageNet holds a PNG that is named .JPEG; TensorFlow's pipeline takes the same two


class Request(NamedTuple):
    """One image to decode; ``seed`` decides its crop and flip."""

    path: str
    label: int
    seed: str


def batches(
    index: ImageIndex, rank: int, world: int, batch_size: int, image_size: int, seed: int, workers: int
) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    """A rank's batches without end: images float32 [N, 3, H, W] in channels_last memory, labels int64 [N].

    ``workers`` processes decode, and start at once; with 0 the caller decodes. A crop depends on (seed, epoch, image),
    never on the rank or the worker, so runs repeat. Raises DataError when there are fewer images than ranks, and
    BadImage from ``next`` at the first batch that holds an image which cannot be decoded.
    """
    check_world(len(index), world)
    loader = DataLoader(
        Decoder(image_size),
        sampler=_requests(index, rank, world, batch_size, seed),
        batch_size=None,  # a request is a batch already
        **(_processes(workers) if workers else {}),
    )
    return map(_channels_last, loader)


def _processes(workers: int) -> dict[str, object]:
    context = get_context("forkserver")
    # Import the slow packages once, not once per worker. Not this module: before Python 3.13 a fork server does not run
    # the main module first, which is what makes this package importable.
    context.set_forkserver_preload(["torch", "PIL.Image"])
    return {
        "num_workers": workers,
        "prefetch_factor": 2,
        "multiprocessing_context": context,
        "worker_init_fn": _end_with_trainer,
    }


def _end_with_trainer(_: int) -> None:
    """End this decoder when its trainer dies, however it dies.

    PyTorch's own watchdog looks at the parent, which is the fork server, and that lives as long as its children: together
    they would outlive a trainer that was killed.
    """
    trainer = parent_process()
    assert trainer

    def wait() -> None:
        trainer.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _requests(index: ImageIndex, rank: int, world: int, batch_size: int, seed: int) -> Iterator[List[Request]]:
    images = order(len(index), rank, world, seed)
    while True:
        yield [
            Request(index.path(image), index.labels[image], f"{seed}/{epoch}/{image}")
            for epoch, image in itertools.islice(images, batch_size)
        ]


def _channels_last(batch: Union[BadImage, List[torch.Tensor]]) -> Tuple[torch.Tensor, torch.Tensor]:
    """The decoder's NHWC array seen as an NCHW tensor, without a copy."""
    if isinstance(batch, BadImage):
        raise batch
    images, labels = batch
    return images.permute(0, 3, 1, 2), labels


class Decoder:
    """The loader's data set: its keys are lists of requests, its items are batches."""

    def __init__(self, image_size: int) -> None:
        self.image_size = image_size
        # One value per column of a row of pixels: NumPy is seven times faster on whole rows than on three channels.
        self.mean = np.tile(np.array(MEAN, np.float32), image_size)
        self.scale = np.tile(1 / np.array(STD, np.float32), image_size)

    def __getitem__(self, requests: List[Request]) -> Union[BadImage, Tuple[np.ndarray, np.ndarray]]:
        """Images float32 [N, H, W, 3], labels int64 [N]; or the reason why there are none.

        A BadImage is returned, not raised, because DataLoader turns exceptions from its workers into tracebacks.
        Normalising happens here, image by image in the cache and beside the training step, which receives the finished
        batch; bytes would be four times less to pass on, but then the step waits for the arithmetic.
        """
        images = np.empty((len(requests), self.image_size, self.image_size, 3), np.float32)
        for image, request in enumerate(requests):
            try:
                pixels = decode(request, self.image_size)
            except BadImage as bad:
                return bad
            rows = images[image].reshape(self.image_size, -1)
            np.subtract(pixels.reshape(rows.shape), self.mean, out=rows)
            rows *= self.scale
        return images, np.array([request.label for request in requests], np.int64)


def decode(request: Request, image_size: int) -> np.ndarray:
    """Read an image, crop, resize and flip it: uint8 [H, W, 3]. Raises BadImage."""
    random = Random(request.seed)  # noqa: S311 - no secret
    try:
        with Image.open(request.path, formats=FORMATS) as image:
            left, top, right, bottom = crop(random, image.width / image.height)
            # Decoding at half size or less skips coefficients. Ask for no less than image_size pixels in the crop.
            image.draft("RGB", (math.ceil(image_size / (right - left)), math.ceil(image_size / (bottom - top))))
            width, height = image.size
            resized = image.convert("RGB").resize(
                (image_size, image_size),
                Image.Resampling.BILINEAR,
                box=(left * width, top * height, right * width, bottom * height),
            )
    except UnidentifiedImageError as error:
        raise BadImage(request.path, "neither JPEG nor PNG") from error
    except Exception as error:  # damaged bytes raise OSError, SyntaxError, struct.error, EOFError, MemoryError…
        raise BadImage(request.path, getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
    pixels = np.asarray(resized)
    return pixels[:, ::-1] if random.random() < 0.5 else pixels


def crop(random: Random, aspect: float) -> Tuple[float, float, float, float]:
    """A random crop of an image whose width / height is ``aspect``: left, top, right, bottom as fractions of it."""
    for _ in range(ATTEMPTS):
        area = random.uniform(*AREA)
        stretch = random.uniform(*ASPECT) / aspect
        width, height = math.sqrt(area * stretch), math.sqrt(area / stretch)
        if width <= 1 and height <= 1:
            left, top = random.uniform(0, 1 - width), random.uniform(0, 1 - height)
            return left, top, min(left + width, 1.0), min(top + height, 1.0)
    return 0.0, 0.0, 1.0, 1.0
