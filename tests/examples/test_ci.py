"""The templates for CI systems, as far as they go without a server: their files are read, and their lines carried out."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.subject import TRAINING
from harness.environments import cache_folder
from harness.running.prepare import Place
from harness.worker import machine
from tests import made
from tests.conftest import FEW_STEPS, PATIENCE_S, ROOT, SMALLEST, run_in_process

TEMPLATES = ROOT / "examples" / "ci"
SMALL = ["--threads", "1", "--repeats", "2", *SMALLEST, *FEW_STEPS]
VARIABLES = {"HARNESS", "HARNESS_SITE", "MEASURED"}  # what a centre sets


@dataclass(frozen=True)
class Template:
    """A night's work: the whole file, the variables that it sets, the lines that install harness, and those that use it."""

    file: dict[Any, Any]
    variables: dict[str, str]
    install: list[str]
    script: list[str]


@cache
def gitlab() -> Template:
    file = yaml.safe_load((TEMPLATES / "gitlab-ci.yml").read_text())
    (job,) = file.values()
    return Template(file, job["variables"], job["before_script"], job["script"])


@cache
def github() -> Template:
    file = yaml.safe_load((TEMPLATES / "github-actions.yml").read_text())
    (job,) = file["jobs"].values()
    install, script = (step["run"].splitlines() for step in job["steps"] if "run" in step)
    return Template(file, job["env"], install, [line for line in script if not line.startswith("#")])


def carried_out(lines: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The lines as a runner carries them out: in one shell, which ends with the first line that fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HARNESS_SITE")}
    environ = kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "HARNESS_CACHE": str(cache_folder())}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env=environ | {"OMP_WAIT_POLICY": "PASSIVE"} | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


# --- the files ---


def test_the_one_for_gitlab_is_a_scheduled_job_that_keeps_the_records_and_the_report_of_nights_that_fail() -> None:
    (job,) = gitlab().file.values()
    assert set(job) == {
        *("rules", "tags", "resource_group", "timeout", "variables", "before_script", "script", "cache", "artifacts")
    }
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
    assert job["cache"]["when"] == job["artifacts"]["when"] == "always" and job["cache"]["paths"] == ["runs/"]
    assert set(job["artifacts"]["paths"]) == {"report.html", "runs/$CI_PIPELINE_ID/"}
    assert job["artifacts"]["reports"] == {"junit": "regression.xml"}


def test_the_one_for_github_is_a_scheduled_workflow_that_keeps_the_records_and_the_report_of_nights_that_fail() -> None:
    file = github().file
    started_by = file[True]  # YAML 1.1 reads `on` so
    assert set(started_by) == {"schedule", "workflow_dispatch"} and file["permissions"] == {"contents": "read"}
    (job,) = file["jobs"].values()
    assert set(job) == {"runs-on", "timeout-minutes", "env", "steps"}
    restored, _, _, kept, uploaded = job["steps"]
    assert [step["uses"].partition("@")[0] for step in (restored, kept, uploaded)] == [
        "actions/cache/restore",
        "actions/cache/save",
        "actions/upload-artifact",
    ]
    assert restored["with"]["key"] == kept["with"]["key"] and restored["with"]["path"] == kept["with"]["path"] == "runs"
    assert restored["with"]["key"].startswith(restored["with"]["restore-keys"])
    assert kept["if"] == uploaded["if"] == "always()"  # a slower night has records and a report, too


@pytest.mark.parametrize("template", [gitlab, github])
def test_what_a_centre_sets_is_in_variables_and_lines_hold_nothing_that_only_a_server_replaces(
    template: Callable[[], Template],
) -> None:
    lines = [*template().install, *template().script]
    assert set(template().variables) == VARIABLES
    assert not any("${{" in line for line in lines)
    own = {"CI_PIPELINE_ID", "GITHUB_RUN_ID", "GITHUB_STEP_SUMMARY", "began"}
    assert {name for line in lines for name in re.findall(r"\$(\w+)", line)} <= VARIABLES | own


def test_both_measure_and_compare_the_same() -> None:
    def common(lines: Sequence[str]) -> list[str]:
        return [re.sub(r" (--junit|--markdown) .*|\$(CI_PIPELINE|GITHUB_RUN)_ID", "", line) for line in lines]

    assert gitlab().install == github().install and common(gitlab().script) == common(github().script)
    assert gitlab().variables == github().variables


@pytest.mark.parametrize("template", [gitlab, github])
def test_the_options_that_a_template_measures_with_are_those_of_this_version(
    template: Callable[[], Template], tmp_path: Path
) -> None:
    measured = template().variables["MEASURED"].split()
    run_in_process(tmp_path, "run", *measured, "--tag", "nightly", "--site", "daint", "--dry-run").succeeded()


# --- a night ---


def referring_wheel(folder: Path) -> Path:
    """A wheel that pip installs without a network: it refers to this checkout and to what these tests have installed."""
    info, wheel = "harness_bench-0.1.0.dist-info", folder / "harness_bench-0.1.0-py3-none-any.whl"
    files = {
        "harness_bench.pth": f"{ROOT}\n{sysconfig.get_path('purelib')}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: hpc-harness\nVersion: 0.1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nharness = harness.cli:main\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return wheel


@pytest.fixture(scope="module")
def installed(environment: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the lines that install harness, which both templates have, were carried out."""
    environment("pytorch")
    folder = tmp_path_factory.mktemp("installed")
    done = carried_out(gitlab().install, folder, HARNESS=str(referring_wheel(folder)), PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    return folder


def earlier_nights(folder: Path, img_per_s: float) -> None:
    """Records as the template's run here would have them, of three nights before this one that had so many img/s."""
    given = {"model": "pointwise", "batch_size": 2, "image_size": 32, "threads": 1, "warmup_steps": 1, "steps": 3}
    (spec,) = TRAINING.specs({"backend": "pytorch", "nodes": 1} | given, repeats=2)
    full = Place(output=folder).prepare(spec).spec
    fields = full.model_dump(exclude={"backend", "nodes", "repeats", "options"}) | full.options
    ago = (datetime.now(UTC) - made.FIRST).total_seconds() / 86400
    values, here = (img_per_s, 1.01 * img_per_s), {"site": None, "machine": machine.describe()}
    nights = [made.record("pytorch", 1, values, day=ago - night, **here, **fields) for night in (1, 2, 3)]
    made.save(folder / "runs", [night.model_copy(update={"tag": "nightly"}) for night in nights])


def night(template: Template, installed: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / ".venv").symlink_to(installed / ".venv")
    summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    measured = " ".join(["--backend pytorch --nodes 1", *SMALL])
    ids = dict.fromkeys(("CI_PIPELINE_ID", "GITHUB_RUN_ID"), "7")
    return carried_out(template.script, folder, HARNESS_SITE="local", MEASURED=measured, **summary, **ids)


@pytest.mark.slow
def test_a_night_on_gitlab_that_is_not_slower_than_the_last_weeks_passes_and_leaves_its_record_and_a_report(
    installed: Path, tmp_path: Path
) -> None:
    earlier_nights(tmp_path, 1e-3)
    done = night(gitlab(), installed, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 measurement compared: 1 faster" in done.stdout
    assert len(list(tmp_path.glob("runs/7/*/record.json"))) == 1
    assert "<html" in (tmp_path / "report.html").read_text() and "failures" in (tmp_path / "regression.xml").read_text()


@pytest.mark.slow
def test_a_night_on_github_that_is_slower_ends_with_the_code_of_the_regression_and_says_so_in_its_summary(
    installed: Path, tmp_path: Path
) -> None:
    earlier_nights(tmp_path, 1e9)
    done = night(github(), installed, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SLOWER" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "report.html").exists()
