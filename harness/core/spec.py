"""RunSpec: a measurement to make. Every field is validated here, from the command line, a file or Python."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from harness import kernels, models
from harness.core import known_logs
from harness.core.text import LARGEST_SIZE
from harness.core.validation import checked, option_name

SYNTHETIC = "synthetic"
MOST_WORKERS = 65_536  # each needs a port of its own
EMULATED = "emulated:"  # begins the name of a device that waits instead of computing (see ``core/emulation.py``)
DEVICES = ("auto", "cpu", "cuda", f"{EMULATED}NAME|FILE")
MpiLibrary = Literal["mpich", "openmpi", "intel"]
MPI_LIBRARIES: tuple[MpiLibrary, ...] = get_args(MpiLibrary)
Value = TypeVar("Value")

# Names are written with ``_``; command lines and files may have ``-``.
Underscored = BeforeValidator(lambda value: value.replace("-", "_") if isinstance(value, str) else value)


# In the ``json_schema_extra`` of a backend's option that means nothing to a kernel: its values that make another training
# than synchronous SGD in float32. Runs with these are not compared with the others.
OTHER_TRAINING = "other_training"


def option(default: Value, description: str, **limits: Any) -> Value:
    """The field of an option, which the command line shows with its ``description``; ``limits`` are those of a Field."""
    field: Value = Field(default, description=description, **limits)
    return field


def of_training(default: Any, description: str, other: Sequence[Any] = (), **limits: Any) -> Any:
    """The field of a backend's option that means nothing to a kernel; the values in ``other`` make it another training."""
    return option(default, description, json_schema_extra={OTHER_TRAINING: [*other]}, **limits)


class Frozen(BaseModel):
    """Base of specs and of what a record holds: immutable, closed to unknown names, and without infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Options(Frozen):
    """Base of a backend's own options."""


def _known_device(value: str) -> str:
    if value not in DEVICES[:-1] and (not value.startswith(EMULATED) or value == EMULATED):
        raise ValueError(f"must be {', '.join(map(repr, DEVICES[:-1]))} or {DEVICES[-1]!r}")
    return value


def variant_of(device: str | None) -> Literal["cpu", "cuda"]:
    """The kind of device that a framework is built for and started on: an emulated one is a process on CPUs."""
    return "cuda" if device == "cuda" else "cpu"


class Accuracy(Frozen):
    """An accuracy on the validation images, as a fraction."""

    metric: Literal["top1", "top5"]
    value: float = Field(gt=0, le=1)


class Training(Frozen):
    """The way to train to an accuracy: SGD with momentum, linear scaling of the learning rate and a gradual warm-up.

    The schedule is that of Goyal et al. 2017 (arXiv:1706.02677). The rate is the spec's ``learning_rate`` ×
    global batch / ``reference_batch``: it rises to that linearly over the first epochs and is multiplied by ``decay`` at
    each of ``decay_epochs``. Fewer epochs than 90 shorten the schedule alike.
    """

    epochs: int = option(90, "times to see every training image, at most", ge=1, le=100_000)
    until: Accuracy | None = option(None, "stop once the validation images are classified as well as this")
    validation: str = Field(
        min_length=1,
        description="folder with the classes of the validation images  [default: val/, validation/ or shards in --data]",
    )
    reference_batch: int = option(256, "global batch that --learning-rate is meant for", ge=1, le=100_000_000)
    warmup_epochs: float = Field(
        default_factory=lambda given: min(5.0, given["epochs"] / 10),
        ge=0,
        description="epochs in which the rate rises  [default: 5, at most a tenth of --epochs]",
    )
    decay_epochs: tuple[int, ...] = Field(
        default_factory=lambda given: usual_decays(given["epochs"]),
        description="epochs after which the rate falls  [default: a third, two thirds and eight ninths of --epochs]",
    )
    decay: float = option(0.1, "factor of the rate after each of these", gt=0, le=1)
    momentum: float = option(0.9, "momentum of SGD", ge=0, lt=1)
    weight_decay: float = option(1e-4, "L2 penalty on the weights", ge=0, lt=1)
    evaluate_every: int = option(1, "epochs between evaluations; the last one is always evaluated", ge=1)
    checkpoint_every: int = option(1, "epochs between checkpoints; the last one always has one", ge=1)
    resume: str | None = option(None, "checkpoint to go on from", min_length=1)

    @field_validator("decay_epochs")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(later <= earlier for earlier, later in zip((0, *value), value, strict=False)):
            raise ValueError("must be whole epochs in rising order, such as 30,60,80")
        return value


def usual_decays(epochs: int) -> tuple[int, ...]:
    """After 30, 60 and 80 of 90 epochs, and at the same parts of another number, to whole epochs before the last."""
    whole = (round(epochs * share) for share in (1 / 3, 2 / 3, 8 / 9))
    return tuple(dict.fromkeys(epoch for epoch in whole if 0 < epoch < epochs))


class KernelSizes(Frozen):
    """A kernel, and its sizes: bytes of a message, or rows and numbers to compute with (see ``kernels/kernel.py``)."""

    name: Annotated[str, Underscored, AfterValidator(lambda name: kernels.specification(name) and name)]
    sizes: tuple[Annotated[int, Field(ge=1, le=LARGEST_SIZE)], ...] = Field(min_length=1, max_length=64)

    @classmethod
    def of(cls, name: str, sizes: Sequence[int] | None = None) -> Self:
        """The kernel of this name with ``sizes``, by default its usual ones. Raises InvalidInput."""
        usual = kernels.specification(name).usual
        return checked(cls, {"name": name, "sizes": usual if sizes is None else tuple(sizes)})


class Program(Frozen):
    """Somebody's own distributed program: the command of each of its processes, which has ``{rank}`` and the like.

    It is started in ``folder``. ``pattern`` finds a number in what workers print, of which img/s follow, by the program's
    own clock; ``log`` names a program whose pattern and unit are known.
    """

    command: tuple[str, ...] = Field(min_length=1)
    folder: str = Field(min_length=1)
    workers_per_node: int = option(1, "workers on each node, which share its devices", ge=1, le=1024)
    ps: int = option(0, "number of parameter servers", ge=0, le=MOST_WORKERS)
    ps_per_node: int = option(1, "parameter servers on a node, at most; nodes are filled in order", ge=1, le=1024)
    mpi: bool = option(False, "start all processes as the ranks of one MPI world, workers first")
    once: bool = option(False, "start it on the first node only: it starts the others itself, on {hosts}")
    log: str | None = option(None, "read img/s as this program prints them; see `harness list programs`")
    pattern: str | None = option(
        None, "expression whose one group is a number in a line of the output; the last match counts", min_length=1
    )
    unit: Literal["img/s", "step/s", "s/step", "ms/step"] = option(
        "img/s", "unit of that number, unless the group has one"
    )
    images_per_step: int | None = option(
        None, "images of a step of which the output has the time or the rate, over all workers", ge=1
    )
    sum_workers: bool = option(False, "add the img/s that the workers print, where each prints its own share")
    times_workers: bool = option(
        False, "multiply by the number of devices, where only the first worker prints its own share"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_log(cls, value: object) -> object:
        """Add the known fields of the ``log``, where no others are given. A record has its pattern."""
        if not isinstance(value, dict) or value.get("log") is None or value.get("pattern") is not None:
            return value
        known = {name: field for name, field in known_logs.read(value["log"]).items() if name not in known_logs.ABOUT}
        return known | {name: given for name, given in value.items() if given is not None}

    @field_validator("pattern")
    @classmethod
    def _with_one_group(cls, value: str | None) -> str | None:
        import regex

        try:
            groups = 1 if value is None else regex.compile(value).groups
        except regex.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(r"must have one group, as in 'total images/sec: ([0-9.]+)'")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.once and (self.mpi or self.ps):
            raise ValueError(f"--once: it starts its ranks itself; leave out {'--mpi' if self.mpi else '--ps'}")
        if self.once and (self.sum_workers or self.times_workers):
            option = "--sum-workers" if self.sum_workers else "--times-workers"
            raise ValueError(f"{option}: with --once there is one output, of all workers; leave it out")
        if self.sum_workers and self.times_workers:
            raise ValueError("--times-workers: is for output of the first worker only; leave out --sum-workers")
        if self.pattern is None:
            for name in ("unit", "images_per_step", "sum_workers", "times_workers"):
                if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{option_name(name)}: says how output is read; give --pattern or --log, too")
        elif self.unit != "img/s" and self.images_per_step is None:
            raise ValueError(f"--images-per-step is required: the output has {self.unit}")
        elif self.unit == "img/s" and self.images_per_step is not None:
            raise ValueError("--images-per-step: is for steps; give --unit step/s, s/step or ms/step, or leave it out")
        return self


# Fields that mean nothing to a kernel.
OF_TRAINING = (
    *("model", "batch_size", "image_size", "data", "data_threads", "data_cache", "learning_rate"),
    *("straggler_limit", "require_rdma", "save_parameters", "data_format", "trace_steps"),
)
COMPOSED = {"options", "training", "kernel", "program", "warmup_auto"}  # of RunSpec: follow from options, and are none
MOST_WARMUP = 200  # steps of --warmup auto
OF_STEPS = ("framework", "transport", "mpi", "warmup_steps", "steps", "precision", "seed")  # none of a program either
UNUSED_BY_KERNELS = (*OF_TRAINING, "precision", "dilation", "bytes_scale")  # options that nobody gives for one


class RunSpec(Frozen):
    """A measurement to make. ``None`` means "the usual"; ``plan.complete`` replaces it: a record holds no ``None``.
    Without a choice of the MPI library there is no field of it: only a process that has loaded one knows which it is.

    The defaults of steps, repeats, batch size and classes are the protocol of the 2017 reference results. The upper bounds
    are far beyond any sensible run: a slip of the keyboard is refused at once instead of filling a machine's memory.

    With ``training``, learning is measured: steps, warm-up steps and repeats mean nothing. With ``kernel``, a step is one
    of the kernel's, and nothing is trained.
    """

    backend: Annotated[str, Underscored] = Field(description="how training is distributed; see `harness list backends`")
    framework: str | None = option(
        None, "framework that computes, where a backend has a choice  [default: the backend's own]", min_length=1
    )
    model: Annotated[str, Underscored, AfterValidator(lambda name: models.specification(name) and name)] = option(
        "resnet50", "the network; see `harness list models`"
    )
    nodes: int = option(1, "nodes with workers", ge=1, le=MOST_WORKERS)
    devices_per_node: int = option(1, "devices per node; GPUs, or shares of its cores", ge=1, le=1024)
    batch_size: int = option(64, "images per device and step; the per-device batch", ge=1, le=1_000_000)
    image_size: int | None = option(None, "pixels per side  [default: the model's own]", ge=16, le=4096)
    warmup_steps: int = option(
        10, "steps before the measured window; auto: until they are steady, at most 200", ge=0, le=1_000_000
    )
    warmup_auto: bool = False
    steps: int = option(100, "measured steps per repeat", ge=1, le=1_000_000)
    repeats: int = option(5, "times to measure; each in fresh processes", ge=1, le=1000)
    data: str = option(
        SYNTHETIC, "'synthetic', or a folder with images; JPEGs in ImageNet's layout, or TFRecord shards", min_length=1
    )
    data_threads: int | None = option(None, "decoding threads per worker  [default: --threads]", ge=1, le=4096)
    data_cache: Annotated[Literal["as_found", "cold", "warm"], Underscored] = option(
        "as_found", "images in the nodes' memory before a repeat: as found, none (cold), or all (warm)"
    )
    transport: str | None = option(
        None, "library that carries the gradients  [default: the backend's own]", min_length=1
    )
    mpi: MpiLibrary | None = option(
        None, "the MPI library, where MPI carries something  [default: that of the environment]"
    )
    device: Annotated[str, AfterValidator(_known_device)] = option(
        "auto", "where to compute; auto: the GPUs if there are any; emulated: nothing computes, layers take time"
    )
    dilation: float = option(1.0, "seconds that pass for a second of an emulated device", ge=1, le=100_000)
    bytes_scale: float = option(1.0, "share of each tensor's bytes that an emulated device has", gt=0, le=1)
    precision: Literal["fp32", "tf32", "amp", "fp16"] = option(
        "fp32", "arithmetic of the network; amp: bfloat16 where it is safe; fp16: float16 with a scaled loss"
    )
    data_format: Literal["auto", "nchw", "nhwc"] = option(
        "auto", "order of images in memory; auto: the framework's usual one on the device"
    )
    threads: int | None = option(
        None, "compute threads per worker  [default: the node's cores / workers]", ge=1, le=4096
    )
    learning_rate: float = option(0.01, "step size of SGD", gt=0)
    seed: int = option(1, "of weights, synthetic images and shuffling", ge=0, le=2**32 - 1)
    timeout_s: float = option(1800.0, "seconds after which a repeat counts as hung", gt=0, le=1e7)
    straggler_limit: float = option(2.0, "a rank slower than this × the median rank fails the run", gt=1)
    require_rdma: bool = option(False, "fail unless cards with RDMA carry what nodes exchange")
    trace_steps: int = option(0, "steps to trace after the measured ones; see `harness trace`", ge=0, le=100)
    save_parameters: bool = option(False, "keep the trained parameters of every rank (npz)")
    training: Training | None = option(None, "train to an accuracy instead of measuring img/s")
    kernel: KernelSizes | None = option(None, "measure a kernel instead of training")
    program: Program | None = option(None, "start a program that is not ours instead of measuring")
    options: dict[str, Any] = Field(default_factory=dict, description="the backend's own options")

    @model_validator(mode="before")
    @classmethod
    def _until_steady(cls, given: object) -> object:
        """``--warmup auto`` is a limit of steps, and a mark that they may be fewer."""
        if isinstance(given, dict) and given.get("warmup_steps") == "auto":
            return given | {"warmup_steps": MOST_WARMUP, "warmup_auto": True}
        return given

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.workers > MOST_WORKERS:
            raise ValueError(
                f"--nodes {self.nodes} with --devices-per-node {self.devices_per_node}: at most {MOST_WORKERS} workers"
            )
        if self.warmup_auto and (self.kernel or self.program):
            raise ValueError("--warmup auto is for measurements of img/s; give a number of steps")
        if self.training and self.trace_steps:
            raise ValueError("--trace-steps is for measurements of img/s; leave it out")
        if not self.emulated and (self.dilation, self.bytes_scale) != (1, 1):
            option = "--dilation" if self.dilation != 1 else "--bytes-scale"
            raise ValueError(f"{option} is for emulated devices: give --device {EMULATED}NAME, such as {EMULATED}p100")
        return self

    @model_serializer(mode="wrap")
    def _as_it_applies(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Fields that do not apply are left out: a kernel has no model, and a real device no dilation."""
        fields: dict[str, object] = handler(self)
        absent = [] if self.training else ["training"]
        absent += OF_TRAINING if self.kernel or self.program else []
        absent += [] if self.kernel else ["kernel"]
        absent += OF_STEPS if self.program else ["program"]
        absent += [] if self.mpi else ["mpi"]
        absent += [] if self.trace_steps else ["trace_steps"]
        absent += ["data_format"] if self.data_format == "auto" else []
        absent += [] if self.warmup_auto else ["warmup_auto"]
        absent += [] if self.emulated else ["dilation", "bytes_scale"]
        return {name: value for name, value in fields.items() if name not in absent}

    @property
    def emulated(self) -> str:
        """The name or the file of the device that is emulated, "" where a real one computes."""
        return self.device.removeprefix(EMULATED) if self.device.startswith(EMULATED) else ""

    @property
    def warmup(self) -> str:
        """The warm-up for people: ``10``, or ``up to 200``."""
        return f"up to {self.warmup_steps}" if self.warmup_auto else str(self.warmup_steps)

    @property
    def subject(self) -> str:
        """The network or the kernel that is measured, or what the program is called."""
        if self.program:
            scripts = (word for word in self.program.command if word.endswith(".py"))
            return re.sub(r"\W+", "_", PurePath(next(scripts, self.program.command[0])).stem, flags=re.ASCII)[:80]
        return self.kernel.name if self.kernel else self.model

    @property
    def carrier(self) -> str:
        """The chosen carrier of the gradients: ``gloo``, ``mpi``, or ``mpi:intel``."""
        return ":".join(filter(None, (self.transport, self.mpi)))

    @property
    def workers(self) -> int:
        """Devices that train: what img/s counts."""
        return self.nodes * self.devices_per_node

    @property
    def global_batch(self) -> int:
        """Images per step over all devices."""
        return self.workers * self.batch_size

    @classmethod
    def validated(cls, **fields: object) -> Self:
        """Build a spec. Raises InvalidInput with one line that names the option, the value and what would be right."""
        return checked(cls, fields)
