"""Images for PyTorch: a DataLoader whose workers decode with Pillow. Python 3.9, torch 1.10 and later.

Only the trainer's process knows the index. It sends its workers requests for whole batches, and as requests never end,
neither does the loader: workers live as long as the iterator, and an epoch's tail flows into the next epoch.

Workers come from a fork server, which is a fresh process: forking the trainer itself would copy the locks of its Gloo,
MPI and OpenMP threads in whatever state they are. So the trainer's main module must guard its entry point with
``if __name__ == "__main__"``.
"""

from __future__ import annotations

import os
from io import BytesIO
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader

from harness.worker.inputs import augmentation, order, records
from harness.worker.inputs.augmentation import MEAN, STD
from harness.worker.inputs.errors import BadImage
from harness.worker.inputs.index import ImageIndex, Index
from harness.worker.inputs.order import check_world
from harness.worker.inputs.shards import Record

FORMATS = ("JPEG", "PNG")  # ImageNet holds a PNG that is named .JPEG; TensorFlow's pipeline takes the same two

Batches = Iterator[Tuple[torch.Tensor, torch.Tensor]]


class Request(NamedTuple):
    """A batch to decode: where its images are, and their epochs and numbers, which decide the crops.

    ``labels`` are those of files; records have theirs within. ``ahead`` will soon be read by someone.
    """

    sources: List[Union[str, Record]]
    labels: List[int]
    epochs: List[int]
    images: List[int]
    ahead: List[Record]


def batches(
    index: Index,
    rank: int,
    world: int,
    batch_size: int,
    image_size: int,
    seed: int,
    workers: int,
    num_classes: Union[int, None] = None,
    done: int = 0,
) -> Batches:
    """A rank's batches without end: images float32 [N, 3, H, W] in channels_last memory, labels int64 [N].

    They go on after the first ``done`` images of the rank. ``workers`` processes decode, and start at once; with 0 the
    caller decodes. A crop depends on (seed, epoch, image), never on the rank or the worker, so runs repeat. Raises
    DataError when there are fewer images than ranks, and BadImage from ``next`` at the first batch that holds an image
    which cannot be read or decoded, or whose label is not below ``num_classes``.
    """
    check_world(len(index), world)
    return _decoded(
        Decoder(batch_size, image_size, seed, num_classes),
        _requests(index, rank, world, batch_size, seed, done),
        workers,
    )


def evaluation(
    index: Index,
    rank: int,
    world: int,
    batch_size: int,
    image_size: int,
    workers: int,
    num_classes: Union[int, None] = None,
) -> Batches:
    """A rank's share of all images, once, in order, cropped in the middle: batches as those of ``batches``.

    Every rank has the same number of them: where its images end, labels are -1 and images are zero. Raises BadImage as
    ``batches`` does.
    """
    return _decoded(
        Decoder(batch_size, image_size, None, num_classes), _shares(index, rank, world, batch_size), workers
    )


def _decoded(decoder: Decoder, requests: Iterator[Request], workers: int) -> Batches:
    loader = DataLoader(
        decoder,
        sampler=requests,
        batch_size=None,  # a request is a batch already
        **(_processes(workers) if workers else {}),
    )
    return map(_channels_last, loader)


def _processes(workers: int) -> Dict[str, Any]:
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


def _requests(index: Index, rank: int, world: int, batch_size: int, seed: int, done: int) -> Iterator[Request]:
    first_epoch, skipped = order.reached(len(index), rank, world, done)
    groups = order.groups(index, rank, world, seed, first_epoch)
    group = next(groups)
    ahead, positions = _runs(index, group.pieces), []
    for following in groups:
        ahead += _runs(index, following.pieces)
        images = order.shuffled(order.images_of(group.pieces), group.epoch, seed)
        positions += [(group.epoch, image) for image in images[skipped:].tolist()]
        skipped = max(skipped - len(images), 0)
        while len(positions) >= batch_size:
            yield _request(index, positions[:batch_size], ahead)
            positions, ahead = positions[batch_size:], []
        group = following


def _shares(index: Index, rank: int, world: int, batch_size: int) -> Iterator[Request]:
    begin, end = order.share(len(index), rank, world)
    for first in range(begin, begin + order.longest_share(len(index), world), batch_size):
        yield _request(index, [(0, image) for image in range(first, min(first + batch_size, end))], [])


def _runs(index: Index, pieces: np.ndarray) -> List[Record]:
    """What the kernel may read ahead."""
    return [] if isinstance(index, ImageIndex) else [index.run(begin, end) for begin, end in pieces.tolist()]


def _request(index: Index, positions: Sequence[Tuple[int, int]], ahead: List[Record]) -> Request:
    epochs, images = [epoch for epoch, _ in positions], [image for _, image in positions]
    if isinstance(index, ImageIndex):
        labels = [index.labels[image] for image in images]
        return Request([index.path(image) for image in images], labels, epochs, images, ahead)
    return Request([index.record(image) for image in images], [], epochs, images, ahead)


def _channels_last(batch: Union[BadImage, List[torch.Tensor]]) -> Tuple[torch.Tensor, torch.Tensor]:
    """The decoder's images seen as an NCHW tensor, without a copy."""
    if isinstance(batch, BadImage):
        raise batch
    images, labels = batch
    return images.permute(0, 3, 1, 2), labels


class Decoder:
    """The loader's data set: its keys are requests, its items are batches. Without a ``seed`` it decodes for evaluation."""

    def __init__(
        self, batch_size: int, image_size: int, seed: Union[int, None], num_classes: Union[int, None] = None
    ) -> None:
        self.batch_size, self.image_size, self.seed, self.num_classes = batch_size, image_size, seed, num_classes
        # One value per column of a row of pixels: whole rows are much faster than three channels.
        self.mean = torch.tensor(MEAN).repeat(image_size)
        self.scale = 1 / torch.tensor(STD).repeat(image_size)
        self.reader = records.Reader()

    def __getitem__(self, request: Request) -> Union[BadImage, Tuple[torch.Tensor, torch.Tensor]]:
        """Images float32 [N, H, W, 3], labels int64 [N]; or the reason why there are none.

        A BadImage is returned, not raised, because DataLoader turns exceptions from its workers into tracebacks.
        Normalising happens here, image by image in the cache and beside the training step, which receives the finished
        batch; bytes would be four times less to pass on, but then the step waits for the arithmetic.
        """
        for run in request.ahead:
            self.reader.will_need(run)
        count = len(request.images)
        # NumPy's memory is used again batch after batch. PyTorch's is aligned, and would be new pages for a while.
        images = torch.from_numpy(np.empty((self.batch_size, self.image_size, self.image_size, 3), np.float32))
        labels = torch.full((self.batch_size,), -1)
        images[count:], labels[: len(request.labels)] = 0, torch.tensor(request.labels)
        drawn = None if self.seed is None else augmentation.draws(self.seed, request.epochs, request.images)
        for number, source in enumerate(request.sources):
            crops, flip = (drawn[0][number], drawn[1][number]) if drawn else (None, False)
            try:
                if isinstance(source, Record):
                    pixels, labels[number] = self._decoded(source, crops, flip)
                else:
                    pixels = decode(source, source, self.image_size, crops, flip)
            except BadImage as bad:
                return bad
            rows = images[number].view(self.image_size, -1)
            torch.sub(pixels.reshape(rows.shape), self.mean, out=rows).mul_(self.scale)
        return images, labels

    def _decoded(self, record: Record, crops: Union[np.ndarray, None], flip: bool) -> Tuple[torch.Tensor, int]:
        found = self.reader.read(record, self.num_classes)
        try:
            return decode(BytesIO(found.encoded), found.place, self.image_size, crops, flip), found.label
        except BadImage as bad:
            raise BadImage(bad.path, records.damage(record) or bad.reason) from bad


def decode(
    file: Union[str, IO[bytes]],
    place: str,
    image_size: int,
    crops: Union[np.ndarray, None] = None,
    flip: bool = False,
) -> torch.Tensor:
    """Read an image, crop, resize and flip it: float32 [H, W, 3] in 0–255. Raises BadImage, with its ``place``.

    ``crops`` [ATTEMPTS, 4] are what ``augmentation.draws`` has drawn; without them it is the crop for evaluation.
    """
    try:
        with Image.open(file, formats=FORMATS) as image:
            size = image.size
            box = augmentation.central_crop(*size) if crops is None else augmentation.random_crop(crops, *size)
            ratio = augmentation.ratio(box, image_size) if image.format == "JPEG" else 1
            left, top, width, height = augmentation.pixels(box, *size, ratio)
            if ratio > 1:
                image.draft("RGB", (size[0] // ratio, size[1] // ratio))
            colours = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
            part = colours.crop((left, top, left + width, top + height))
    except UnidentifiedImageError as error:
        raise BadImage(place, "neither JPEG nor PNG") from error
    except Exception as error:  # damaged bytes raise OSError, SyntaxError, struct.error, EOFError, MemoryError…
        raise BadImage(place, getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
    resized = _resized(np.asarray(part), image_size)
    return resized.flip(1) if flip else resized


def _resized(pixels: np.ndarray, image_size: int) -> torch.Tensor:
    """Pixels uint8 [h, w, 3], resized bilinearly: float32 [H, W, 3].

    By PyTorch, which is faster at it than Pillow, does not round, and needs not smooth, as TensorFlow does not.
    """
    # With a batch of one in front before channels change places, strides say channels_last; else PyTorch would put every
    # channel by itself, and that takes longer than resizing.
    image = torch.from_numpy(pixels.astype(np.float32))[None].permute(0, 3, 1, 2)
    resized = interpolate(image, size=(image_size, image_size), mode="bilinear", align_corners=False)
    return resized.permute(0, 2, 3, 1)[0]
