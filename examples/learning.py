"""Train with seven ways, on 1, 2 and 4 workers each, on the same images, and say whether they learn the same.

They are all backends but jax, parameter_server_strategy and torch_parameter_server; --backends names others.

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

import json
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pandas as pd
from scipy.stats import f_oneway, t

from harness.core.backend import contenders
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


def judged(accuracies: np.ndarray) -> dict[str, bool | float]:
    """The verdict on top-1 of ways × seeds, two of each at least.

    ``largest`` is how far the way furthest from the mean of all is from it, at most (95 %). ``noise`` is the standard
    deviation between seeds.
    """
    ways, seeds = accuracies.shape
    noise = float(np.sqrt(accuracies.var(axis=1, ddof=1).mean()))
    p_value = float(np.nan_to_num(f_oneway(*accuracies).pvalue, nan=1.0))  # not a number where all are equal
    error = noise * np.sqrt((1 - 1 / ways) / seeds)
    furthest = np.abs(accuracies.mean(axis=1) - accuracies.mean()).max()
    largest = float(furthest + t.ppf(1 - 0.025 / ways, ways * (seeds - 1)) * error)
    same = p_value >= 0.05 and largest <= MARGIN
    return {"same": same, "p_value": p_value, "largest": largest, "noise": noise, "margin": MARGIN}


def top1(data: Path, output: Path, way: str, workers: int, seed: int) -> float:
    """After the last epoch of one training, done now unless its record is there. Ends the program when it fails."""
    folder = output / f"{way.replace(':', '-')}-{workers}-{seed}"
    records = [training.TrainingRecord.read(file) for file in folder.glob(f"*/{training.TrainingRecord.file_name}")]
    record = next((record for record in records if record.status == "completed"), None)
    if record is None:
        (contender,) = contenders([way], "cpu")
        argv = ["train", *(f"--{name}={value}" for name, value in contender.items())]
        argv += ["--nodes", str(workers), "--seed", str(seed), *SCHEDULE]
        argv += ["--batch-size", str(GLOBAL_BATCH // workers), "--threads", "1", "--model", "mnist_cnn"]
        argv += ["--data", str(data), "--output", str(folder), "--json"]
        done = subprocess.run([sys.executable, "-m", "harness", *argv], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{way}, {workers} workers, seed {seed}: {done.stderr}")
        record = training.TrainingRecord.model_validate_json(done.stdout)
    reached = record.epochs[-1].top1
    assert reached is not None
    return reached


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--backends", default=WAYS, help="BACKEND[:FRAMEWORK][:TRANSPORT],…")
@click.option("--workers", default="1,2,4", help="numbers of workers, divisors of 32")
@click.option("--seeds", type=click.IntRange(2), default=3, help="how many seeds")
def main(data: Path, output: Path, backends: str, workers: str, seeds: int) -> None:
    """Train on DATA, which examples/digits.py has written; run directories and learning.json go to OUTPUT."""
    ways, sizes = backends.split(","), [int(size) for size in workers.split(",")]
    if len(ways) * len(sizes) < 2 or any(GLOBAL_BATCH % size for size in sizes):
        raise click.UsageError("give at least two ways, and numbers of workers that divide 32")
    try:
        contenders(ways, "cpu")  # complaints come before the first training
    except InvalidInput as error:
        raise click.UsageError(str(error)) from None
    results = pd.DataFrame(index=pd.MultiIndex.from_product([ways, sizes], names=["way", "workers"]))
    for seed in range(1, seeds + 1):
        for way, size in results.index:
            results.loc[(way, size), seed] = top1(data, output, way, size, seed)
            click.echo(f"seed {seed}  {way}  {size} workers  top-1 {results.loc[(way, size), seed]:.4f}", err=True)
    verdict = judged(results.to_numpy())
    document = {
        "schedule": SCHEDULE,
        "global_batch": GLOBAL_BATCH,
        "seeds": list(results.columns),
        "top1": [
            {"way": way, "workers": size, "values": list(values)}
            for (way, size), values in zip(results.index, results.to_numpy(), strict=True)
        ],
        "verdict": verdict,
    }
    (output / "learning.json").write_text(json.dumps(document, indent=1) + "\n")
    cells = (100 * results).apply(lambda values: f"{values.mean():.2f} ± {values.std():.2f}", axis=1).unstack()
    rows = [[way, *cells.loc[way, sizes]] for way in ways]
    head = ["top-1 in %, ± stdev over seeds", *(f"{size} workers" for size in sizes)]
    click.echo(table([head, *rows], right=range(1, len(head))))
    outcome = "the same within noise" if verdict["same"] else "not shown to be the same"
    click.echo(
        f"\n{outcome}: p = {verdict['p_value']:.3f} (F test), no way more than {verdict['largest']:.2%} from the mean of "
        f"all (95 %, margin {MARGIN:.0%}); another seed makes {verdict['noise']:.2%}"
    )
    sys.exit(0 if verdict["same"] else 1)


if __name__ == "__main__":
    main()
