"""A backend in a package of its own (tiny_backend), installed as a stranger would."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import models
from harness.datasets.make import make
from harness.records import measurement
from tests.conftest import ROOT, Harness
from tests.wording import Case, cases

MODEL = models.specification("resnet50")
STEPS = 6
RUN = ["run", "--backend", "tiny", "--env", sys.executable, "--nodes", "2", "--batch-size", "2", "--image-size", "32"]
RUN += ["--warmup", "2", "--steps", str(STEPS - 2), "--repeats", "1"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a user who has installed the package beside harness."""
    return having(package("tiny_backend", tmp_path_factory))


def package(name: str, folders: pytest.TempPathFactory) -> Path:
    """The folder that a package of this folder is installed in."""
    site = folders.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", site, Path(__file__).with_name(name)], check=True)
    return site


def having(*folders: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *([before] if before else [])])}


def announcing(folder: Path, group: str, point: str) -> Path:
    """The folder of an installed package that announces something that is not there."""
    facts = folder / "site" / "broken-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    return folder / "site"


def test_an_installed_backend_is_listed_and_shows_its_options(harness: Harness, installed: dict[str, str]) -> None:
    assert "\ntiny: an example" in harness("list", "backends", **installed).stdout
    assert "\ntiny: " not in harness("list", "backends").stdout
    help_text = " ".join(harness("run", "--backend", "tiny", "--help", **installed).stdout.split())
    assert "--steepness NUMBER of the bowl that is descended [default: 1]" in help_text


def test_an_installed_backend_trains_and_gives_a_record(
    harness: Harness, installed: dict[str, str], tmp_path: Path
) -> None:
    done = harness(*RUN, "--steepness", "3", **installed)
    assert done.code == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    kept = measurement.Record.read(run)
    assert kept.spec.options == {"steepness": 3.0} and (kept.spec.framework, kept.spec.transport) == ("numpy", "tcp")
    assert kept.derived and done.stdout.endswith(f"total images/sec: {kept.derived.img_per_s.mean:.2f}\n")
    first, second = kept.repeats[0].ranks
    assert second.evidence["transport"] == f"tcp with 127.0.0.1:{kept.plan['processes'][0]['port']}"
    for rank in (first, second):
        losses = rank.evidence["losses"]
        assert len(losses) == STEPS and losses == sorted(losses, reverse=True) and losses[-1] < 0.9 * losses[0]
        assert rank.network and rank.network.interfaces == ["lo"]
        assert rank.network.sent == pytest.approx(MODEL.bytes * (STEPS - 2), rel=0.01)


def test_the_worked_example_trains_as_pytorch_does(
    harness: Harness, environment: Callable[[str], Path], tmp_path: Path
) -> None:
    """The backend that CONTRIBUTING.md shows, in a package of its own."""
    trainer, backend = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    site = announcing(tmp_path, "harness.backends", "flat = flat.backend:BACKEND")
    (site / "flat").mkdir()
    for name, text in (("__init__", ""), ("trainer", trainer), ("backend", backend)):
        (site / "flat" / f"{name}.py").write_text(text)
    common = ["--env", str(environment("pytorch")), "--nodes", "2", "--model", "pointwise", "--seed", "3", *RUN[7:]]
    runs = [harness("run", "--backend", name, *common, "--json", **having(site)) for name in ("flat", "pytorch")]
    assert [run.code for run in runs] == [0, 0], runs[0].stderr
    ours, theirs = ([rank["evidence"]["losses"] for rank in run.json["repeats"][0]["ranks"]] for run in runs)
    assert len(ours[0]) == STEPS and ours == [pytest.approx(losses, rel=1e-5) for losses in theirs]


def test_one_that_only_measures_says_so_when_it_is_to_train_to_an_accuracy(
    harness: Harness, installed: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    for split in ("train", "validation"):
        make(tmp_path / split, 4, 2, (40, 40), seed=1)
        (tmp_path / split / "train").rename(tmp_path / "images" / split)
    train = ["train", "--backend", "tiny", "--env", sys.executable, "--nodes", "2", "--batch-size", "2"]
    done = harness(*train, "--data", str(tmp_path / "images"), "--model", "mnist_cnn", **installed)
    assert done.code == 1
    assert "tiny cannot train to an accuracy: its trainer is no Learner" in done.stderr


@cases
def test_its_words_about_a_wrong_request_are_one_line(harness: Harness, installed: dict[str, str], case: Case) -> None:
    case.refused(harness(*RUN, *case.words(), **installed))


def test_a_backend_that_does_not_load_is_named_and_leaves_the_others_alone(harness: Harness, tmp_path: Path) -> None:
    site = announcing(tmp_path, "harness.backends", "broken = broken:BACKEND")
    (site / "broken.py").write_text("import a_module_that_is_not_there\n")
    listed = harness("list", "backends", **having(site))
    assert (listed.code, listed.stderr) == (0, "")
    assert "a_module_that_is_not_there" in listed.stdout and "\npytorch: " in listed.stdout
    harness("run", "--backend", "broken", **having(site)).refused("backend 'broken' does not load: ModuleNotFoundError")
    assert harness("run", "--backend", "pytorch", "--dry-run", **having(site)).code == 0


@pytest.mark.slow
def test_its_environment_is_built_like_every_other(harness: Harness, installed: dict[str, str], tmp_path: Path) -> None:
    cache = installed | {"HARNESS_CACHE": str(tmp_path / "cache")}
    built = harness("env", "build", "tiny", **cache)
    assert built.code == 0, built.stderr
    done = harness(*[word for word in RUN if word not in ("--env", sys.executable)], "--json", **cache)
    assert done.code == 0, done.stderr
    packages = set(done.json["software"]["packages"])
    assert "numpy" in packages and "hpc-harness" not in packages
