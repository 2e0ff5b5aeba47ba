"""Train every backend with 1, 2 and 4 workers on the same images, and say whether they learn the same.

    python examples/digits.py digits
    python examples/learning.py digits learning

The global batch is the same for every number of workers, and so are the initial weights and the order of the images of one
seed. What is left of a training in OUTPUT is not trained again: start it again after an interruption, or with more seeds.
Prints a table, and writes it with the verdict to OUTPUT/learning.json. Exits with 1 if they do not learn the same.

The test: noise is how much top-1 after the last epoch differs between seeds, pooled over all ways (a backend with a number
of workers). Ways learn *the same within noise* if a one-way analysis of variance finds no difference between them at 5 %,
and if no way is more than MARGIN away from the mean of all with 95 % confidence, for all of them at once (Bonferroni). The
second condition keeps noise that hides everything from counting as equality. Both are cautious, as ways share their seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import f, t

from harness.core.contenders import contenders
from harness.errors import InvalidInput
from harness.records import training
from harness.report.text.table import table

GLOBAL_BATCH = 32
SCHEDULE = ["--epochs", "12", "--learning-rate", "0.05", "--warmup-epochs", "1"]
WAYS = (
    "parameter_server,distributed_replicated,multi_worker_mirrored,horovod:tensorflow:gloo,horovod:torch:gloo,"
    "pytorch:gloo,caffe2:gloo"
)
MARGIN = 0.03  # of the validation images; of 360 digits, 11


@dataclass(frozen=True)
class Verdict:
    """The test's outcome. ``largest`` is how far the way furthest from the mean of all is from it, at most (95 %).

    ``noise`` is the standard deviation between seeds.
    """

    same: bool
    p_value: float
    largest: float
    noise: float
    margin: float = MARGIN


def judged(accuracies: np.ndarray) -> Verdict:
    """The verdict on top-1 of ways × seeds, two of each at least."""
    ways, seeds = accuracies.shape
    of_way = accuracies.mean(axis=1) - accuracies.mean()
    freedom = ways * (seeds - 1)
    variance = float(accuracies.var(axis=1, ddof=1).mean())
    between = seeds * float((of_way**2).sum()) / (ways - 1)
    p_value = float(f.sf(between / variance, ways - 1, freedom)) if variance else float(between == 0)
    error = np.sqrt(variance * (1 - 1 / ways) / seeds)
    largest = float(np.abs(of_way).max() + t.ppf(1 - 0.025 / ways, freedom) * error)
    return Verdict(bool(p_value >= 0.05 and largest <= MARGIN), p_value, largest, float(np.sqrt(variance)))


def trained(data: Path, output: Path, way: str, workers: int, seed: int) -> training.TrainingRecord:
    """The record of one training, made now unless it is there. Ends the program when the training fails."""
    folder = output / f"{way.replace(':', '-')}-{workers}-{seed}"
    for file in folder.glob(f"*/{training.FILE_NAME}"):
        record = training.read(file)
        if record.status == "completed":
            return record
    (one,) = contenders([way], "cpu")
    chosen = ["--framework", one.framework] if one.framework else []
    chosen += ["--transport", one.transport] if one.transport else []
    argv = ["train", "--backend", one.backend.name, *chosen, "--nodes", str(workers), "--seed", str(seed), *SCHEDULE]
    argv += ["--batch-size", str(GLOBAL_BATCH // workers), "--threads", "1", "--model", "mnist_cnn"]
    argv += ["--data", str(data), "--output", str(folder), "--json"]
    done = subprocess.run([sys.executable, "-m", "harness", *argv], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{way}, {workers} workers, seed {seed}: {done.stderr}")
    return training.TrainingRecord.model_validate_json(done.stdout)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="what examples/digits.py has written")
    parser.add_argument("output", type=Path, help="folder for the run directories and learning.json")
    parser.add_argument("--backends", default=WAYS, help="BACKEND[:FRAMEWORK][:TRANSPORT],…")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers, divisors of 32")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds, 2 or more")
    given = parser.parse_args()
    ways, sizes = given.backends.split(","), [int(size) for size in given.workers.split(",")]
    seeds = range(1, given.seeds + 1)
    if given.seeds < 2 or len(ways) * len(sizes) < 2 or any(GLOBAL_BATCH % size for size in sizes):
        parser.error("give at least two seeds and two ways, and numbers of workers that divide 32")
    found: dict[tuple[str, int], list[float]] = {}
    try:
        contenders(ways, "cpu")  # complaints come before the first training
        for seed in seeds:
            for way in ways:
                for size in sizes:
                    top1 = trained(given.data, given.output, way, size, seed).epochs[-1].top1
                    assert top1 is not None
                    found.setdefault((way, size), []).append(top1)
                    print(f"seed {seed}  {way}  {size} workers  top-1 {top1:.4f}", file=sys.stderr, flush=True)
    except InvalidInput as error:
        sys.exit(str(error))
    verdict = judged(np.array(list(found.values())))
    document = {
        "schedule": SCHEDULE,
        "global_batch": GLOBAL_BATCH,
        "seeds": list(seeds),
        "top1": [{"way": way, "workers": size, "values": values} for (way, size), values in found.items()],
        "verdict": asdict(verdict),
    }
    (given.output / "learning.json").write_text(json.dumps(document, indent=1) + "\n")
    print(shown(found, ways, sizes))
    outcome = "the same within noise" if verdict.same else "not shown to be the same"
    print(
        f"\n{outcome}: p = {verdict.p_value:.3f} (F test), no way more than {verdict.largest:.2%} from the mean of all "
        f"(95 %, margin {MARGIN:.0%}); another seed makes {verdict.noise:.2%}"
    )
    sys.exit(0 if verdict.same else 1)


def shown(found: dict[tuple[str, int], list[float]], ways: list[str], sizes: list[int]) -> str:
    """Top-1, mean ± standard deviation over the seeds, as a table."""
    rows = [("top-1 in %, ± stdev over seeds", *(f"{size} workers" for size in sizes))]
    for way in ways:
        cells = [found[way, size] for size in sizes]
        rows.append(
            (way, *(f"{100 * statistics.mean(cell):.2f} ± {100 * statistics.stdev(cell):.2f}" for cell in cells))
        )
    return table(rows, right=set(range(1, len(sizes) + 1)))


if __name__ == "__main__":
    main()
