"""``harness ab``: two sides in turn on the same nodes, how many repeats show a difference, and which side is faster."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import harness as from_python
from harness.analysis import ab
from harness.analysis.ab import POWER, Noise, PairedVerdict, power, repeats_for
from harness.analysis.ratios import Sample, turn_factor
from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.records.kernel import KernelRecord
from harness.records.launch import LaunchRecord
from harness.report.text import ab as texts
from harness.running.sides import Comparison, Settings
from tests.conftest import FEW_STEPS, SMALLEST, Finished, Harness, run_harness, run_in_process
from tests.unit.simulated import draws, least, most
from tests.unit.test_preflight import CHECKED
from tests.wording import Case, Wording, cases

IMG_PER_S = "img/s: ([0-9.]+)"


def judge(a: Sequence[float], b: Sequence[float], difference: float, together: int = 1) -> PairedVerdict:
    """Of two sides that took turns in one job."""
    sides = (Sample.of(values, ["1"] * len(values)) for values in (a, b))
    return ab.judge(*sides, difference, together)


# --- how many repeats it takes --------------------------------------------------------------------


def simulated(count: int, noise: float, change: float, repeats: int, together: int = 1) -> list[str]:
    """What ``count`` comparisons say whose true ratio is 1 + ``change``."""
    normal = np.random.default_rng(20260101).standard_normal((count, 2, repeats))
    a, b = np.exp(noise * normal[:, 0]), (1 + change) * np.exp(noise * normal[:, 1])
    return [judge(*sides, 0.02, together).answer for sides in zip(100 * a, 100 * b, strict=True)]


@draws(10_000, few=1000)
@pytest.mark.parametrize(
    ("noise", "repeats", "together"),
    [(0.003, 2, 1), (0.005, 3, 1), (0.01, 5, 1), (0.02, 5, 1), (0.02, 23, 1), (0.01, 9, 17)],
)
def test_the_power_is_the_share_of_comparisons_that_find_the_difference(
    noise: float, repeats: int, together: int, count: int
) -> None:
    said = simulated(count, noise, 0.02, repeats, together)
    # Either side: with so few repeats the wrong one may be called faster.
    found = len(said) - said.count("undecided") - said.count("no difference")
    promised = power(noise, 0.02, repeats, together)
    assert least(promised, count) <= found <= most(promised, count)


@draws(10_000, few=1000)
def test_of_equal_sides_hardly_one_in_twenty_is_called_faster(count: int) -> None:
    """The allowance for turns keeps independent noise below the level: 3.5 % of five."""
    said = simulated(count, 0.02, 0.0, 5)
    assert least(0.03, count) <= said.count("A is faster") + said.count("B is faster") <= most(0.05, count)


@draws(5000, few=400)
def test_of_equal_kernels_hardly_one_in_twenty_is_called_faster_at_any_size(count: int) -> None:
    """Sizes of one repeat have much in common; that of half of the noise is."""
    normal = np.random.default_rng(20260102).standard_normal((count, 2, 5, 1 + 4))
    rates = np.exp(0.02 * (normal[..., :1] + normal[..., 1:]))
    faster = [
        any(judge(a[:, size], b[:, size], 0.02, 4).answer.endswith("faster") for size in range(4)) for a, b in rates
    ]
    assert sum(faster) <= most(0.05, count)


@pytest.mark.parametrize(("effect", "published"), [(0.5, 44), (0.8, 19), (1.0, 13)])
def test_as_many_repeats_are_asked_for_as_for_students_test(effect: float, published: int) -> None:
    """Of which tables say how many it takes for an effect in standard deviations of pairs (G*Power).

    Repeats that take turns need a little more.
    """

    def students(repeats: int, factor: float = 1.0) -> float:
        freedom, shift = repeats - 1, effect * repeats**0.5
        limit = factor * stats.t.ppf(0.975, freedom)
        return float(stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift))

    assert next(repeats for repeats in range(2, 200) if students(repeats) >= POWER) == published
    noise = 0.01  # a pair's difference varies √2 as much
    wanted = repeats_for(noise, float(np.expm1(effect * noise * 2**0.5)))
    assert wanted == next(n for n in range(2, 200) if students(n, turn_factor(n)) >= POWER)
    assert published < wanted <= 1.35 * published


def test_fewer_than_needed_do_not_show_it_and_nobody_makes_too_many() -> None:
    needed = repeats_for(0.02, 0.02)
    assert needed and power(0.02, 0.02, needed) >= POWER > power(0.02, 0.02, needed - 1)
    assert repeats_for(0.0005, 0.02) == 2 and repeats_for(0.0, 0.02) == 2
    assert repeats_for(0.5, 0.02) is None


def test_noise_is_that_of_repeats_around_the_mean_of_their_own_run() -> None:
    slow, fast = np.exp([0.0, 0.02]), 2 * np.exp([0.0, 0.01, 0.02])
    noise = Noise.of([slow.tolist(), fast.tolist(), [50.0]])
    assert noise is not None and (noise.repeats, noise.runs) == (5, 2)
    assert noise.deviation == pytest.approx(((2e-4 + 2e-4) / 3) ** 0.5)  # the squares of three degrees of freedom
    assert Noise.of([[50.0], [60.0], []]) is None


# --- which side is faster -------------------------------------------------------------------------

AROUND = np.array([0.99, 0.995, 1.0, 1.005, 1.01])
OTHERS = AROUND[[2, 0, 4, 1, 3]]  # the same spread in another order, so that pairs differ


@cases
def test_a_verdict_is_one_line(case: Case) -> None:
    b, difference = map(float, case.words())
    verdict = judge((100 * AROUND).tolist(), (100 * b * OTHERS).tolist(), difference)
    case.answered(texts.verdict(verdict))
    assert verdict.slower == (b == 0.9)


def test_what_is_undecided_would_be_decided_by_the_repeats_that_are_asked_for() -> None:
    found = judge((100 * AROUND).tolist(), (99.5 * OTHERS).tolist(), 0.01)
    assert found.answer == "undecided" and found.units and found.units > 5
    # The same mean and spread with so many repeats. Those of a sample of n are a little narrower than the n − 1 think.
    many, others = (np.resize(each, found.units + 2) for each in (AROUND, OTHERS))
    assert judge((100 * many).tolist(), (99.5 * others).tolist(), 0.01).answer != "undecided"


OF_KERNEL = RunSpec.validated(
    backend="mpi4py", nodes=2, repeats=5, kernel={"name": "allreduce", "sizes": (1024, 1 << 20)}
)


def test_each_size_of_a_kernel_has_a_line_and_all_of_them_hold_together() -> None:
    rates = {1024: (1e8, 0.9), 1 << 20: (2e9, 1.001)}
    found = {
        size: judge((rate * AROUND).tolist(), (b * rate * OTHERS).tolist(), 0.02, 2)
        for size, (rate, b) in rates.items()
    }
    slower, equal, end = texts.verdicts(found, OF_KERNEL).splitlines()
    assert re.fullmatch(r"1 KiB  A is faster by 11\.1 % \[9\.\d, 13\.\d\] \(A 0\.1 and B 0\.09 GB/s\)", slower), slower
    assert equal.startswith("1 MiB  no difference larger than 1.8 %: B differs from A by +0.1 % ["), equal
    assert end == "95 % CI of all 2 sizes together, 5 pairs in one allocation"
    comparison = Comparison(schema="harness.ab/1", a="", b="transport=mpi", difference=0.02)
    document, checked = (
        json.loads(texts.as_json(found, OF_KERNEL, comparison, [Path("a"), Path("b")], preflight))
        for preflight in (None, CHECKED)
    )
    assert document["preflight"] is None and checked["preflight"]["pairs"]["slow"][0]["node"] == "n1"
    assert (document["kernel"], document["slower"], document["sides"]["b"]["run"]) == ("allreduce", True, "b")
    assert [(each["size"], each["slower"]) for each in document["verdicts"]] == [(1024, True), (1 << 20, False)]


def test_the_repeats_of_a_kernel_are_said_of_the_size_that_varies_least_and_of_that_which_varies_most() -> None:
    noises = {size: Noise(deviation, 15, 3) for size, deviation in ((1024, 0.03), (4096, 0.02), (1 << 20, 0.005))}
    least_noisy, most_noisy = texts.power(noises, OF_KERNEL, 0.02, 5).splitlines()
    needed = repeats_for(0.005, 0.02, 3)
    assert least_noisy.startswith(
        f"repeats: at 1 MiB a difference of 2 % is shown with 90 % power by {needed} of each "
    )
    assert most_noisy.startswith("repeats: at 1 KiB a difference of 2 % is shown with 90 % power by ")


# --- what sets the sides apart --------------------------------------------------------------------


def read(text: str) -> Settings:
    return Settings.read(text, backends.option_fields())


def test_settings_are_options_variables_and_an_environment() -> None:
    settings = read("env=/opt/torch, transport=mpi,warmup=3,var:NCCL_ALGO=Ring,var:XLA=a=b")
    assert settings.options == {"transport": "mpi", "warmup_steps": "3"}
    assert settings.variables == {"NCCL_ALGO": "Ring", "XLA": "a=b"}
    assert settings.environment == Path("/opt/torch")
    assert settings.unsaid == "env=/opt/torch, NCCL_ALGO=Ring, XLA=a=b"
    assert read("bucket-mb=1;var:LIST=a=1,b=2;var:NONE=").variables == {"LIST": "a=1,b=2", "NONE": ""}
    assert read("var:GPUS=0,1,precision=amp").variables == {"GPUS": "0,1"}
    assert read("") == Settings()


PYTORCH = ["--backend", "pytorch", "--nodes", "2"]
PROGRAM = ["--pattern", IMG_PER_S, "--", "sh", "speed.sh"]
KERNEL = ["--kernel", "alltoall", "--backend", "mpi4py", "--nodes", "2", "--bytes", "4KiB"]


@cases
def test_what_makes_no_comparison_is_refused_in_one_line(refused: Harness, tmp_path: Path, case: Case) -> None:
    case.refused(refused(*case.words()))
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_both_sides_and_leaves_nothing(refused: Harness, tmp_path: Path) -> None:
    done = refused("ab", *PYTORCH, "--a", "var:NCCL_ALGO=Ring", "--b", "transport=mpi", "--dry-run").succeeded()
    assert done.stdout.startswith("A  var:NCCL_ALGO=Ring\nB  transport=mpi\n")
    a, b = re.findall(r"^environment of every process: (.*)$", done.stdout, re.MULTILINE)
    assert "NCCL_ALGO=Ring" in a and "NCCL_ALGO" not in b
    assert [where for where in re.findall(r"^run directory: .*-ab-\w+/(\w)/", done.stdout, re.MULTILINE)] == ["a", "b"]
    for more in ([], ["--site", "daint"]):
        shown = refused("ab", *PYTORCH, "--b", "bucket-mb=1", "--dry-run", "--json", *more).succeeded().json
        assert [run["spec"]["options"]["bucket_mb"] for run in shown["runs"]] == [25, 1]
        assert len(shown["scripts"]) == len(more) // 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("measured", [["--b", "bucket-mb=1"], ["--b", "threads=2", "--kernel", "allreduce"]])
def test_both_sides_take_turns_there_and_back_in_one_job(refused: Harness, measured: list[str]) -> None:
    done = refused("ab", *PYTORCH, *measured, "--repeats", "4", "--site", "daint", "--dry-run").succeeded()
    assert done.stdout.count("#SBATCH --job-name") == 1
    turns = re.findall(r"^measure \S*/(\w)/\S+ (\d) ", done.stdout, re.MULTILINE)
    assert turns == [(side, repeat) for repeat, sides in zip("1234", ("ab", "ba") * 2, strict=True) for side in sides]


def test_the_nodes_are_checked_once_before_both_sides_in_the_environment_of_a(refused: Harness) -> None:
    sides = ["--a", f"env={sys.executable}", "--b", "bucket-mb=1", "--repeats", "2", "--preflight"]
    done = refused("ab", *PYTORCH, *sides, "--site", "daint", "--dry-run").succeeded()
    steps = re.findall(r"^measure \S*/(\w)/[^/ ]+(/preflight)? (\d) ", done.stdout, re.MULTILINE)
    turns = [(side, "", number) for side, number in zip("abba", "1122", strict=True)]
    assert steps == [("a", "/preflight", "1"), *turns]
    (check,) = re.findall(r"^measure \S*/preflight .*", done.stdout, re.MULTILINE)
    assert sys.executable in check
    assert done.stdout.count("\nchecked before: pairs of pytorch (torch) · 2 nodes") == 1


def test_a_program_of_an_environment_is_that_of_the_side(refused: Harness, tmp_path: Path, wording: Wording) -> None:
    own = tmp_path / "venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    program = ["--pattern", IMG_PER_S, "--dry-run", "--", "env", "python", "train.py"]
    done = refused("ab", "--b", "env=venv", *program).succeeded()
    assert re.findall(r"^worker 0 on node0: (.*)$", done.stdout, re.MULTILINE) == [
        "env python train.py",
        f"env {own} train.py",
    ]
    wording("sh").refused(refused("ab", "--b", "env=venv", *program[:-3], "sh", "train.sh"), BIN=own.parent)


# --- measured -------------------------------------------------------------------------------------


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """A folder with two versions of a program: v1 prints about 200 img/s and v2 about 100."""
    folder = tmp_path / "versions"
    for name, speed in (("v1", 200), ("v2", 100)):
        (folder / name).mkdir(parents=True)
        noise = "0x$(od -An -N1 -tx1 /dev/urandom | tr -d ' ') % 4"
        (folder / name / "speed.sh").write_text(f"echo {speed}; echo img/s: $(( {speed} + {noise} ))\n")
    return folder


SPEED = ["--pattern", IMG_PER_S, "--output", "../runs", "--", "sh", "-c", "exec sh $VERSION/speed.sh"]


def verdict(done: Finished) -> str:
    return next(line for line in done.stdout.splitlines() if "95 % CI" in line)


def test_versions_of_a_program_take_turns_and_a_slower_new_one_fails(
    versions: Path, tmp_path: Path, wording: Wording
) -> None:
    common = ["--repeats", "4", "--quiet", *SPEED]
    done = run_harness(versions, "ab", "--a", "var:VERSION=v1", "--b", "var:VERSION=v2", *common)
    assert done.code == 1, done.stderr
    assert re.match(r"A is faster by (9|10)\d\.\d % \[", verdict(done)), done.stdout
    assert "by the program's own clock" in verdict(done)

    (folder,) = (tmp_path / "runs").iterdir()
    a, b = (LaunchRecord.read(next(folder.glob(f"{side}/*/launch.json")), believing_seals=False) for side in "ab")
    turns = [*((each.started, "a") for each in a.repeats), *((each.started, "b") for each in b.repeats)]
    assert "".join(side for _, side in sorted(turns)) == "abbaabba"
    logs = [folder / side / of.id / "repeat-1" / "logs" / "worker-0.log" for side, of in (("a", a), ("b", b))]
    assert [log.read_text().splitlines()[0] for log in logs] == ["200", "100"]
    assert sorted(path.name for path in folder.iterdir()) == ["a", "ab.json", "b"]

    again = run_in_process(tmp_path, "ab", "--of", str(folder), "--json")
    assert (again.code, again.json["verdicts"][0]["answer"], again.json["slower"]) == (1, "A is faster", True)
    (spec,) = folder.glob("b/*/spec.json")
    spec.rename(spec.with_suffix(".whole")).with_suffix(".json").write_text("{")
    wording("damaged").refused(run_in_process(tmp_path, "ab", "--of", str(folder)), FOLDER=folder)
    spec.with_suffix(".whole").rename(spec)
    (kept,) = folder.glob("b/*/launch.json")  # as if the controller had been killed
    kept = kept.rename(kept.with_suffix(".whole"))
    wording("killed").refused(run_in_process(tmp_path, "ab", "--of", str(folder)), FOLDER=folder)
    kept.rename(kept.with_suffix(".json"))
    assert b.img_per_s and again.json["verdicts"][0]["b"]["values"] == list(b.img_per_s.values)
    # What was measured says beforehand how many repeats it takes.
    done = run_harness(versions, "ab", "--a", "var:VERSION=v2", "--b", "var:VERSION=v1", *common)
    assert done.code == 0 and re.match(r"B is faster by (9|10)", verdict(done)), done.stdout + done.stderr
    assert done.stdout.splitlines()[2].endswith("from 8 repeats of 2 earlier runs)")


def test_a_side_without_a_number_is_named_and_there_is_no_verdict(harness: Harness) -> None:
    common = ["--pattern", IMG_PER_S, "--repeats", "2"]
    done = harness("ab", "--a", "var:UNIT=img/s", *common, "--", "sh", "-c", 'echo "$UNIT: 5"')
    assert done.code == 1 and "0 of 1 workers printed a number that matches" in done.stderr
    assert "/b/" in done.stderr.splitlines()[-1] and "95 % CI" not in done.stdout


def updated(python: Path, folder: Path) -> Path:
    """An environment with the packages of that of ``python``, and one that it does not have: made in no time."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    first = python.parents[1]
    (packages,), (own,) = (list(each.glob("lib/python3*/site-packages")) for each in (first, folder))
    (own / "first.pth").write_text(f"{packages}\n")
    (own / "only_here-1.0.dist-info").mkdir()
    (own / "only_here-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: only-here\nVersion: 1.0\n")
    for library in first.glob("lib/*mpi*"):  # which mpi4py looks for in its own environment
        (folder / "lib" / library.name).symlink_to(library)
    return folder


def test_two_environments_are_compared_by_a_kernel_size_by_size_and_from_python_too(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    first = environment("mpi4py").parents[1]
    second = updated(first / "bin" / "python", tmp_path / "second")
    sides = {"a": f"env={first}", "b": f"env={second}"}
    common = {"nodes": 2, "warmup_steps": 1, "steps": 5, "repeats": 2, "threads": 1}
    of_kernel = {"kernel": "allreduce", "sizes": [1024, 65536]}
    frame = from_python.ab("mpi4py", **sides, **of_kernel, output=tmp_path / "runs", **common)
    (folder,) = (tmp_path / "runs").iterdir()
    a, b = (KernelRecord.read(Path(frame[f"{side}_record"][0])) for side in "ab")
    turns = [*((each.started, "a") for each in a.repeats), *((each.started, "b") for each in b.repeats)]
    assert "".join(side for _, side in sorted(turns)) == "abba"
    assert b.software["packages"]["only-here"] == "1.0" and "only-here" not in a.software["packages"]
    assert a.plan["processes"][0]["argv"][0] == str(first / "bin" / "python")

    again = harness("ab", "--of", str(folder), "--json").json
    assert [each["size"] for each in again["verdicts"]] == frame["size"].tolist() == [1024, 65536]
    assert [each["ratio"] - 1 for each in again["verdicts"]] == frame["change"].tolist()
    assert [each["a"]["mean"] for each in again["verdicts"]] == frame["a"].tolist()
    assert again["slower"] == frame["slower"].any()
    # What Python has measured says beforehand how many repeats a command takes.
    options = ["--bytes", "1KiB,64KiB", "--warmup", "1", "--steps", "5", "--repeats", "2", "--threads", "1", "--quiet"]
    options += ["--preflight", "--a", sides["a"], "--b", sides["b"]]
    done = harness("ab", *KERNEL[:-2], "--kernel", "allreduce", *options)
    said = done.stdout.splitlines()
    assert said[:2] == [f"A  {sides['a']}", f"B  {sides['b']}"], done.stderr
    assert re.match(r"repeats: at (1|64) KiB .*, from 4 repeats of 2 earlier runs\)", said[2]), said
    assert [line[:6] for line in said[4:6]] == [" 1 KiB", "64 KiB"] and said[6].endswith("2 pairs in one allocation")
    assert said[7].startswith("preflight  nothing was compared: ") and said[8].startswith("record  ")
    assert done.code == int(any("A is faster" in line and "less than" not in line for line in said))
    # Tables take the sides for two systems, and the comparison of results names the package.
    assert "env=" in harness("table", str(folder)).succeeded().stdout
    assert "only-here" in harness("compare", str(folder / "a"), str(folder / "b")).stdout


@pytest.mark.slow
def test_tables_keep_the_sides_apart_and_regression_compares_them(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    environment("pytorch")
    common = ["--backend", "pytorch", *SMALLEST, *FEW_STEPS, "--threads", "1", "--repeats", "2"]
    done = harness("ab", *common, "--b", "var:TORCH_SHOW_CPP_STACKTRACES=0", "--json")
    assert done.code == int(done.json["slower"]), done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    a, b = (json.loads(next(folder.glob(f"{side}/*/record.json")).read_text()) for side in "ab")
    assert b["variables"]["TORCH_SHOW_CPP_STACKTRACES"] == "0" and "TORCH_SHOW_CPP_STACKTRACES" not in a["variables"]
    assert a["spec"] == b["spec"]
    assert done.json["verdicts"][0]["a"]["values"] == a["derived"]["img_per_s"]["values"]
    rows = harness("table", str(folder), "--format", "csv").succeeded().stdout
    assert "TORCH_SHOW_CPP_STACKTRACES=0" in rows
    compared = harness("compare", str(folder / "a"), str(folder / "b"))
    assert "1 measurement compared" in compared.stdout, compared.stderr
