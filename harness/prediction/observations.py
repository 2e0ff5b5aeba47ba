"""From results to what the model is fitted to: steps of known exchanges, in groups that share one set of parameters."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import models
from harness.core import backend as backends
from harness.core.exchange import ServerExchange, Tokens
from harness.core.spec import RunSpec
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.prediction.law import Law, law, profile

if TYPE_CHECKING:
    import pandas

# The relative standard error of a mean step. That of repeats knows nothing of other days and other allocations: it is never
# taken to be less than LEAST_ERROR. Where no spread was published it is taken to be UNPUBLISHED.
LEAST_ERROR, UNPUBLISHED = 0.01, 0.02
USUAL = 4
# What a published table says of runs that are the best of a search, and the strategy that lost it.
SEARCHED = "best PS count for this size"
LOST = {"parameter_server": "distributed_replicated", "distributed_replicated": "parameter_server"}
# What one worker must do alike for its step to be the same.
WORK = ("model", "batch_size", "image_size", "data", "precision", "threads", "training")

# What runs have in common that are one configuration.
SAME = (
    *("status", "origin", "system", "software", "backend", "framework", "transport", "mpi", "device", *WORK),
    *("nodes", "workers", "ps", "options", "published_efficiency", "published_base"),
)


class Key(NamedTuple):
    """What has one set of parameters: a system with a software stack, one mechanism, one transport."""

    system: str
    software: str
    mechanism: str  # "servers" or "allreduce"
    transport: str
    device: str
    mpi: str = ""  # the library, where results have several


@dataclass(frozen=True)
class Observation:
    """The mean step of one run.

    ``step_s`` is in seconds, or in steps of a single worker where only an efficiency was published. ``single_s`` is a
    single worker's step in the same unit, None where nobody measured it; ``work`` then tells which runs have it in common.
    ``error`` is the relative standard error of ``step_s``. ``beaten`` are the laws of what was tried in its place and was
    not faster.
    """

    backend: str
    model: str
    image_size: int  # 0: the model's own
    law: Law
    nodes: int
    workers: int
    ps: int
    batch: int
    step_s: float
    single_s: float | None
    work: Hashable
    error: float
    relative: bool = False
    published: bool = False
    beaten: tuple[Law, ...] = ()

    @property
    def way(self) -> tuple[str, str, int]:
        """What runs have in common for which the law is wrong in the same way: backend, model, and how tensors are cut."""
        return way_of(self.backend, self.model, self.law)

    @property
    def img_per_s(self) -> float:
        """Throughput of all workers; NaN where only an efficiency is known."""
        return math.nan if self.relative else self.workers * self.batch / self.step_s

    @property
    def label(self) -> str:
        """``parameter_server, 128 workers, 116 ps``."""
        servers = f", {self.ps} ps" if self.ps else ""
        return f"{self.backend}, {plural(self.workers, 'worker')}{servers}"


def way_of(backend: str, model: str, law_: Law) -> tuple[str, str, int]:
    pieces = law_.exchange.pieces if isinstance(law_.exchange, ServerExchange) else ()
    return backend, model, len(pieces)


@dataclass(frozen=True)
class ObservationGroup:
    """Observations with one set of parameters. ``forward_share`` of their compute is None where nobody measured it."""

    key: Key
    observations: tuple[Observation, ...]
    forward_share: float | None = None

    @property
    def name(self) -> str:
        """``Piz Daint XC50 P100, TensorFlow 1.1.0, servers over grpc``."""
        system, software, mechanism, transport, _, library = self.key
        return f"{system}, {software}, {mechanism}" + (f" over {library or transport}" if transport else "")

    @cached_property
    def selected_on(self) -> bool:
        """Whether the law was chosen with these very measurements in sight: then nothing of them was ever held out."""
        from harness.results import published

        known = {(row.system, row.framework) for row in published.select("")}
        return all(one.published for one in self.observations) and (self.key.system, self.key.software) in known


def groups(
    frame: pandas.DataFrame, data: str = "synthetic", forward_share: float | None = None
) -> tuple[list[ObservationGroup], list[str]]:
    """The groups of the completed runs in a DataFrame of ``results.load``, and what was left out and why.

    Runs of one configuration are one observation, of their mean.

    Runs that read image files are left out unless ``data`` is "real": how long reading takes is not part of the law. So are
    runs of other training (asynchronous, 16 bit gradients), of models that are not in ``harness/models``, of backends
    that do not say what they exchange, and efficiencies that are known to be relative to several workers. Of a group's
    models only one may have nothing but efficiencies, the one with most of them: each model's unit is a step of its own.
    """
    fit, left_out = [], Counter[str]()
    for row in _distinct(frame):
        if reason := unfit(row, data):
            left_out[reason] += row["runs"]
        else:
            fit.append(row | {"law": _law_of(row), "step_s": step_of(row), "work": work_of(row)})
    by_key: dict[Key, list[dict[Any, Any]]] = {}
    for row in fit:
        by_key.setdefault(_key(row), []).append(row)
    for key, rows in by_key.items():
        relative = Counter(row["model"] for row in rows if math.isnan(row["img_per_s"]))
        usual = relative.most_common(1)[0][0] if relative else ""
        by_key[key] = [row for row in rows if not math.isnan(row["img_per_s"]) or row["model"] == usual]
        for row in rows:
            if math.isnan(row["img_per_s"]) and row["model"] != usual:
                reason = f"an efficiency of {row['model']} cannot be fitted with those of {usual}"
                left_out[reason] += row["runs"]
    # Mean steps of a single worker, by what it does, and by that and its backend.
    steps: dict[Hashable, list[float]] = {}
    for row in (row for rows in by_key.values() for row in rows):
        if row["workers"] == 1 and not math.isnan(row["img_per_s"]):
            for work in (row["work"], (row["backend"], row["transport"], row["work"])):
                steps.setdefault(work, []).append(row["step_s"])
    singles = {work: sum(values) / len(values) for work, values in steps.items()}
    made = []
    for key in sorted(key for key, rows in by_key.items() if rows):
        usual_spread = _usual_spread(by_key[key])
        observations = [_observation(row, singles, usual_spread) for row in by_key[key]]
        observations.sort(key=lambda one: (one.workers, one.backend, one.ps))
        made.append(ObservationGroup(key, tuple(observations), forward_share))
    return made, [f"{plural(count, 'run')}: {reason}" for reason, count in left_out.most_common()]


def _distinct(frame: pandas.DataFrame) -> list[dict[Any, Any]]:
    """A row for each configuration, with the mean of its ``runs``: the law says the same of all of them.

    Where there are several runs, it is their means that spread, not the repeats within them.
    """
    alike: dict[int, list[int]] = {}
    for place, number in enumerate(frame.groupby(list(SAME), sort=False, dropna=False).ngroup().tolist()):
        alike.setdefault(number, []).append(place)
    img_per_s = frame["img_per_s"].to_numpy()
    rows: list[dict[Any, Any]] = frame.iloc[[places[0] for places in alike.values()]].to_dict("records")
    for row, places in zip(rows, alike.values(), strict=True):
        row["runs"] = len(places)
        if len(places) > 1:
            means = img_per_s[places]
            row |= {"values": means, "img_per_s": float(means.mean()), "stdev": float(means.std(ddof=1))}
    return rows


def unfit(row: dict[Any, Any], data: str) -> str:
    """Why the law has nothing to say about a row; "" if it has."""
    if row["status"] != "completed":
        return "without a number"
    if row["data"] != data and not (row["data"] == "" and data == "synthetic"):
        return f"{'synthetic data' if row['data'] == 'synthetic' else 'image files'}; the law leaves out what reading costs"
    if row["model"] not in models.names():
        return f"model {row['model']} is not known here" if row["model"] else "the model is not stated"
    if row["training"]:
        return f"{row['training']}: the law is about synchronous steps of 32 bit gradients"
    if row["published_base"] > 1:
        return f"an efficiency relative to {row['published_base']} workers; the law starts from a single one"
    with suppress(InvalidInput):
        if backends.backend(row["backend"]).exchange is not None:
            return ""
    return f"backend {row['backend']} does not say what it exchanges"


def _key(row: dict[Any, Any]) -> Key:
    exchange = row["law"].exchange
    mechanism = "servers" if isinstance(exchange, ServerExchange) else "allreduce"
    # Of published results only those of Xeon Phi nodes were computed on a CPU.
    device = row["device"] or ("cpu" if "KNL" in row["system"] else "cuda")
    return Key(row["system"], row["software"], mechanism, row["transport"], device, row["mpi"])


def step_of(row: dict[Any, Any]) -> float:
    """The mean step, in seconds; in steps of a single worker where only an efficiency was published."""
    if math.isnan(row["img_per_s"]):
        return 1.0 / float(row["published_efficiency"])
    return float(row["workers"] * row["batch_size"] / row["img_per_s"])


def work_of(row: dict[Any, Any]) -> tuple[Any, ...]:
    """What one worker does in a step, where and with which software."""
    return tuple(row[name] for name in ("system", "software", *WORK))


def _observation(row: dict[Any, Any], singles: dict[Hashable, float], usual: float) -> Observation:
    relative = math.isnan(row["img_per_s"])
    own = (row["backend"], row["transport"], row["work"])
    # What a published table says that it searched was won against the other strategy with as many servers.
    lost = LOST.get(row["backend"]) if SEARCHED in row["note"] and row["workers"] > 1 else None
    return Observation(
        backend=row["backend"],
        model=row["model"],
        image_size=row["image_size"],
        law=row["law"],
        nodes=row["nodes"] or row["workers"],  # a table of efficiencies does not say
        workers=row["workers"],
        ps=row["ps"],
        batch=row["batch_size"],
        step_s=row["step_s"],
        single_s=1.0 if relative else singles.get(own, singles.get(row["work"])),
        work=row["work"],
        error=_error(row, usual),
        relative=relative,
        published=row["origin"] == "published",
        beaten=(_law_of(row | {"backend": lost}),) if lost else (),
    )


def _usual_spread(rows: list[dict[Any, Any]]) -> float:
    """The relative standard deviation of our own repeats, of all configurations together; 0 where nothing was repeated."""
    repeated = [row for row in rows if row["origin"] != "published" and len(row["values"]) > 1]
    squares = sum((len(row["values"]) - 1) * _relative(row) ** 2 for row in repeated)
    freedom = sum(len(row["values"]) - 1 for row in repeated)
    return math.sqrt(squares / freedom) if freedom else 0.0


def _relative(row: dict[Any, Any]) -> float:
    return float(row["stdev"] / row["img_per_s"]) if row["stdev"] > 0 else 0.0


def _error(row: dict[Any, Any], usual: float) -> float:
    """Repeats of ours are independent. Few of them say little about their spread: it counts together with the ``usual`` one
    of the group, as if that were of ``USUAL`` degrees of freedom. A published standard deviation is taken as it is: of how
    many runs in how many allocations it is, few sources say.
    """
    if row["origin"] == "published":
        return math.hypot(LEAST_ERROR, _relative(row)) if row["stdev"] >= 0 else UNPUBLISHED
    repeats = max(1, len(row["values"]))
    variance = (USUAL * usual**2 + (repeats - 1) * _relative(row) ** 2) / (USUAL + repeats - 1)
    return math.hypot(LEAST_ERROR, math.sqrt(variance / repeats))


def _law_of(row: dict[Any, Any]) -> Law:
    law_ = law_for(row["backend"], row["model"], row["image_size"] or None, row["ps"], row["options"])
    return of_2017(law_) if row["origin"] == "published" else law_


@lru_cache(maxsize=65536)
def law_for(backend: str, model: str, image_size: int | None, ps: int, options: str) -> Law:
    """The law of a backend with so many servers (0: it has none) and its ``options`` (JSON)."""
    one = backends.backend(backend)
    assert one.exchange is not None
    given = json.loads(options) | ({"ps": ps} if ps else {})
    own = {name: value for name, value in given.items() if name in one.options.model_fields}
    options_ = one.options(**own).model_dump()
    spec = RunSpec.validated(backend=one.name, model=model, image_size=image_size, nodes=max(1, ps), options=options_)
    exchange = one.exchange(spec)
    # A run from before there was a choice.
    if isinstance(exchange, ServerExchange) and "order" in options_ and "order" not in given:
        exchange = replace(exchange, ordered=None)
    return law(exchange, profile(model, image_size))


@lru_cache(maxsize=65536)
def of_2017(law_: Law) -> Law:
    """With the barriers of tf_cnn_benchmarks, which all published runs with servers had: tokens from each worker to each
    other, in ``distributed_replicated`` for every variable; in what order parameters came is not published. Without servers
    it is the same law.
    """
    exchange = law_.exchange
    if not isinstance(exchange, ServerExchange):
        return law_
    per_piece = exchange.pulls == "after_push"
    tokens: Tokens = "all_to_all_per_piece" if per_piece else "all_to_all"
    return replace(law_, exchange=replace(exchange, tokens=tokens, ordered=None))


def informative(observations: Sequence[Observation]) -> list[Observation]:
    """Those that say something about the law: a measured single worker's step is taken as it is."""
    return [one for one in observations if not (one.workers == 1 and one.single_s is not None)]
