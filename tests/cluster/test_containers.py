"""Runs in images on the real Slurm, in both forms. The image is this machine's own root, which is read-only there."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
PLUGIN = """
env_vars = [["PATH", "{programs}:$PATH"], ["MPIR_CVAR_CH4_NETMOD", "ofi"], ["FI_PROVIDER", "tcp"]]
[[systems.partitions.container_platforms]]
type = "Pyxis"
"""


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path) -> User:
    return User(cluster, tmp_path)


def with_a_plugin(user: User) -> None:
    """Give the site an srun that opens images."""
    (programs := user.folder / "programs").mkdir()
    (programs / "srun").symlink_to(ROOT / "tests" / "programs" / "srun")
    lines = [line for line in user.site.read_text().splitlines() if not line.startswith("env_vars")]
    user.site.write_text("\n".join(lines) + PLUGIN.format(programs=programs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "image"),
    [
        ("pytorch --transport mpi", "bubblewrap:/"),
        ("pytorch --transport mpi", "of-this-host#/"),
        ("parameter_server", "bubblewrap:/"),
    ],
)
def test_every_rank_is_in_the_image(user: User, environment: Callable[..., Path], backend: str, image: str) -> None:
    if image.startswith("of-this-host"):
        with_a_plugin(user)
    python = str(environment(backend.split()[0]))
    user.run(backend, "--nodes", "2", "--container", image, "--env", python).succeeded()
    record = user.record()
    platform = "Bubblewrap" if image.startswith("bubblewrap") else "Pyxis"
    assert record["software"]["image"] == {
        "platform": platform,
        "name": image.removeprefix("bubblewrap:"),
        "digest": "",
    }
    assert [rank["host"] for rank in record["repeats"][0]["ranks"]] == ["node1", "node2"]
    nothing_is_left(user.cluster)


@pytest.mark.parametrize("image", ["bubblewrap:/", "of-this-host#/"])
def test_a_program_that_fails_in_an_image_is_named_with_its_last_lines(user: User, image: str) -> None:
    if image.startswith("of-this-host"):
        with_a_plugin(user)
    program = "import os; print('as rank', os.environ['RANK']); open('/etc/written', 'w')"
    done = user.harness(
        "launch", "--nodes", "2", "--timeout", "100", "--container", image, "--", sys.executable, "-c", program
    )
    assert done.code == 1 and "Read-only file system: '/etc/written'" in done.stderr, done.stderr
    assert "on node" in done.stderr and not Path("/etc/written").exists()
    nothing_is_left(user.cluster)


def test_an_image_that_is_not_there_fails_in_the_words_of_what_opens_it(user: User) -> None:
    done = user.harness(
        "launch", "--nodes", "2", "--timeout", "100", "--container", "bubblewrap:/no/image", "--", "true"
    )
    assert done.code == 1 and "/no/image" in done.stderr, done.stderr
    nothing_is_left(user.cluster)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "code", "words"), [("/", 0, "opened the images of own"), ("/no/image", 2, "/no/image")]
)
def test_site_check_opens_the_images_of_environments(user: User, image: str, code: int, words: str) -> None:
    partition = f'environs = ["own"]\nextras.output = "{user.output}"\n'
    environment = (
        f'[[environments]]\nname = "own"\nextras.container = {{ platform = "Bubblewrap", image = "{image}" }}\n'
    )
    user.site.write_text(user.site.read_text() + partition + environment)
    done = user.harness("site", "check", str(user.site), "--open")
    assert done.code == code and words in done.stdout, done
    nothing_is_left(user.cluster)
