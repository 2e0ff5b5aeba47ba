"""However harness is installed, and beside whatever framework it runs, it is the same files."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = {
    "backends": "backends",
    "models": "models",
    "kernels": "kernels",
    "jobs": "jobs",
    "programs": "programs",
    "reference": "results/reference",
    "studies": "studies",
}
LISTS = ("models", "programs", "sites", "references", "backends")


def _built(source: Path, folder: Path) -> Path:
    quiet = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(quiet, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(ROOT, tmp_path_factory.mktemp("wheel"))


def _content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith("harness/")}


def _tracked(folder: str) -> list[str]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", folder], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if not (ROOT / line).is_symlink()]


def test_the_wheel_holds_every_file_of_the_package_and_of_the_folders_that_it_links_to(wheel: Path) -> None:
    content = _content(wheel)
    expected = {name: name for name in _tracked("harness")}
    for link, folder in LINKED.items():
        expected |= {f"harness/{link}/{Path(name).relative_to(folder)}": name for name in _tracked(folder)}
    assert content == {inside: (ROOT / name).read_bytes() for inside, name in expected.items()}


@pytest.mark.slow
def test_the_source_archive_holds_the_package_and_what_belongs_to_it_and_its_wheel_is_that_of_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {name for name in names if not name.startswith("harness/")}
    assert beside == {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "PKG-INFO",
        "pyproject.toml",
        ".gitignore",
    }
    assert _content(_built(sdist, tmp_path)) == _content(wheel)


def test_the_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Everything a run needs is in it: requirements, trainers, models. Dependencies come from this environment."""
    home = tmp_path / "venv"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", home, "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, wheel], check=True)
    (site,) = home.glob("lib/*/site-packages")
    dependencies = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "dependencies.pth").write_text(dependencies)

    def printed(*command: str | Path) -> str:
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=True).stdout

    plan = json.loads(printed(home / "bin" / "harness", "run", "--backend", "parameter_server", "--dry-run", "--json"))
    trainer = Path(plan["plan"]["trainer"])
    assert trainer.is_relative_to(site) and trainer.is_file()
    assert Path(plan["plan"]["processes"][0]["argv"][1]).is_file()
    lists = f"from harness.cli import cli; [cli.main(['list', what], standalone_mode=False) for what in {LISTS}]"
    checkout = printed(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {lists}")
    assert printed(home / "bin" / "python", "-c", lists) == checkout


def test_a_bare_python_finds_the_same_models_and_trainers() -> None:
    """As the worker does: no installed package, no path but the file of its own folder."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'harness' / 'worker')!r}); import bootstrap; "
        "from harness import models; import harness.worker.process; print(*models.names())"
    )
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert bare.stdout.split() == sorted(folder.parent.name for folder in (ROOT / "models").glob("*/specification.py"))
