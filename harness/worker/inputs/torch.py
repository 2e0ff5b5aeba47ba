"""Images for PyTorch: a DataLoader whose processes decode with Pillow. Python 3.9, torch 1.10 and later.

Only the trainer's process knows the index. It sends the decoders requests for whole batches, and as requests never end,
neither does the loader: decoders live as long as the iterator, and an epoch's tail flows into the next epoch.

Decoders come from a fork server, which is a fresh process: forking the trainer itself would copy the locks of its Gloo,
MPI and OpenMP threads in whatever state they are. So the trainer's main module must guard its entry point with
``if __name__ == "__main__"``.
"""

from __future__ import annotations

import tempfile
from io import BytesIO
from multiprocessing import get_context, util
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader

from harness.worker.inputs import augmentation, tfrecord
from harness.worker.inputs.augmentation import FORMATS, MEAN, STD
from harness.worker.inputs.errors import BadImage
from harness.worker.inputs.index import ImageIndex, ShardIndex
from harness.worker.inputs.order import ReadingOrder, images_of
from harness.worker.inputs.page_cache import Extent
from harness.worker.process import end_with_parent

Batches = Iterator[Tuple[torch.Tensor, torch.Tensor]]
LONGEST_TMPDIR = 70  # characters, of the 107 that the address of a socket may have (unix(7))


class BatchRequest(NamedTuple):
    """A batch to decode: where its images are, and their epochs and numbers, which decide the crops.

    ``labels`` are those of files; records have theirs within. ``ahead`` will soon be read by someone.
    """

    extents: List[Extent]
    labels: List[int]
    epochs: List[int]
    images: List[int]
    ahead: List[Extent]


def batches(reading: ReadingOrder, pinned: bool = False) -> Batches:
    """Images float32 [N, 3, H, W] in channels_last memory, and labels int64 [N].

    The decoders are processes, and start at once; with none of them the caller decodes. ``pinned`` batches are in memory
    that a GPU copies from by itself. Raises BadImage from ``next`` at the first batch that holds a bad image.
    """
    decoder = Decoder(reading.batch_size, reading.image_size, reading.seed, reading.num_classes)
    processes: Dict[str, Any] = {}
    if reading.decoders:
        context = get_context("forkserver")
        if len(tempfile.gettempdir()) > LONGEST_TMPDIR:
            tempfile.tempdir = "/tmp"  # noqa: S108 - where all machines have room for sockets
        util.get_temp_dir()  # now, so that decoders put their sockets there too (see ``remove_sockets``)
        # Import the slow packages once, not once per process. Not this module: before Python 3.13 a fork server does not
        # run the main module first, which is what makes this package importable.
        context.set_forkserver_preload(["torch", "PIL.Image"])
        processes = {"num_workers": reading.decoders, "prefetch_factor": 2, "multiprocessing_context": context}
        # PyTorch's own watchdog looks at the fork server, which would outlive a trainer that was killed.
        processes["worker_init_fn"] = end_with_parent
    # A request is a batch already, so the loader makes none.
    return map(
        _channels_last, DataLoader(decoder, sampler=_requests(reading), batch_size=None, pin_memory=pinned, **processes)
    )


def _channels_last(batch: Union[BadImage, List[torch.Tensor]]) -> Tuple[torch.Tensor, torch.Tensor]:
    """The decoder's images seen as an NCHW tensor, without a copy."""
    if isinstance(batch, BadImage):
        raise batch
    images, labels = batch
    return images.permute(0, 3, 1, 2), labels


def _requests(reading: ReadingOrder) -> Iterator[BatchRequest]:
    index, batch_size = reading.index, reading.batch_size
    positions: List[Tuple[int, int]] = []
    ahead: List[Extent] = []
    left = -(-reading.longest_share // batch_size)  # batches to evaluate, of every rank

    def request() -> BatchRequest:
        epochs, images = [epoch for epoch, _ in positions[:batch_size]], [image for _, image in positions[:batch_size]]
        labels = [index.labels[image] for image in images] if isinstance(index, ImageIndex) else []
        batch = BatchRequest([index.extent(image) for image in images], labels, epochs, images, ahead[:])
        del positions[:batch_size], ahead[:]
        return batch

    for epoch, pieces, places in reading.groups():
        if isinstance(index, ShardIndex):
            ahead += [index.run(begin, end) for begin, end in pieces.tolist()]
        while len(positions) >= batch_size:  # those of the groups before, while this one is read ahead
            yield request()
            left -= 1
        positions += [(epoch, image) for image in images_of(pieces)[places].tolist()]
    for _ in range(left):
        yield request()


class Decoder:
    """The loader's data set: its keys are requests, its items are batches. Without a ``seed`` it decodes for evaluation."""

    def __init__(self, batch_size: int, image_size: int, seed: Optional[int], num_classes: Optional[int]) -> None:
        self.batch_size, self.image_size, self.seed, self.num_classes = batch_size, image_size, seed, num_classes
        # One value per column of a row of pixels: whole rows are much faster than three channels.
        self.mean = torch.tensor(MEAN).repeat(image_size)
        self.scale = 1 / torch.tensor(STD).repeat(image_size)

    def __getitem__(self, request: BatchRequest) -> Union[BadImage, Tuple[torch.Tensor, torch.Tensor]]:
        """Images float32 [N, H, W, 3], labels int64 [N]; or the reason why there are none.

        A BadImage is returned, not raised, because DataLoader turns exceptions from its processes into tracebacks.
        Normalising happens here, image by image in the cache and beside the training step, which receives the finished
        batch; bytes would be four times less to pass on, but then the step waits for the arithmetic.
        """
        for run in request.ahead:
            tfrecord.will_need(run)
        count = len(request.images)
        # NumPy's memory is used again batch after batch. PyTorch's is aligned, and would be new pages for a while.
        images = torch.from_numpy(np.empty((self.batch_size, self.image_size, self.image_size, 3), np.float32))
        labels = torch.full((self.batch_size,), -1)
        images[count:], labels[: len(request.labels)] = 0, torch.tensor(request.labels)
        drawn = None if self.seed is None else augmentation.draws(self.seed, request.epochs, request.images)
        for number, extent in enumerate(request.extents):
            crops, flip = (drawn[0][number], drawn[1][number]) if drawn else (None, False)
            try:
                if request.labels:
                    pixels = decode(extent.path, extent.path, self.image_size, crops, flip)
                else:
                    encoded, labels[number], place = tfrecord.read_image(extent, self.num_classes)
                    try:
                        pixels = decode(BytesIO(encoded), place, self.image_size, crops, flip)
                    except BadImage:  # the record's checksum may say why
                        tfrecord.read_image(extent, self.num_classes, verified=True)
                        raise
            except BadImage as bad:
                return bad
            rows = images[number].view(self.image_size, -1)
            torch.sub(pixels.reshape(rows.shape), self.mean, out=rows).mul_(self.scale)
        return images, labels


def decode(
    file: Union[str, IO[bytes]], place: str, image_size: int, crops: Optional[np.ndarray], flip: bool
) -> torch.Tensor:
    """Read an image, crop, resize and flip it: float32 [H, W, 3] in 0–255. Raises BadImage, with its ``place``."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            size = image.size
            reduced_to = image_size if image.format == "JPEG" else None
            (left, top, width, height), ratio = augmentation.plan(*size, reduced_to, crops)
            if ratio > 1:
                image.draft("RGB", (size[0] // ratio, size[1] // ratio))
            colours = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
            part = np.asarray(colours.crop((left, top, left + width, top + height)))
    except UnidentifiedImageError as error:
        raise BadImage(place, "neither JPEG nor PNG") from error
    except Exception as error:  # damaged bytes raise OSError, SyntaxError, struct.error, EOFError, MemoryError…
        raise BadImage(place, getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
    # PyTorch resizes faster than Pillow, does not round, and like TensorFlow does not smooth. With a batch of one in front
    # before channels change places, strides say channels_last; otherwise PyTorch would put every channel by itself, and
    # that takes longer than resizing.
    channels = torch.from_numpy(part.astype(np.float32))[None].permute(0, 3, 1, 2)
    resized = interpolate(channels, size=(image_size, image_size), mode="bilinear", align_corners=False)
    resized = resized.permute(0, 2, 3, 1)[0]
    return resized.flip(1) if flip else resized
