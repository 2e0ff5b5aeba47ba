"""Environments and data sets on the machines of a host file, which hide what they share with this one at first."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.conftest import PATIENCE_S, ROOT, Finished
from tests.wording import Wording

from .test_ssh import Site
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def site(cluster: VirtualCluster, tmp_path: Path) -> Site:
    return Site(cluster, tmp_path)


@contextmanager
def hidden(site: Site, nodes: str, *folders: Path) -> Iterator[None]:
    """While nodes have empty disks where folders are."""
    with ExitStack() as mounted:
        for node, folder in ((node, str(folder)) for node in nodes.split() for folder in folders):
            site.cluster.exec(node, "mount", "-n", "-t", "tmpfs", "tmpfs", folder).succeeded()
            mounted.callback(site.cluster.exec, node, "umount", "-l", folder)
        yield


def command(site: Site, *arguments: str) -> list[str]:
    where = ["--site", str(site.folder / "site.toml"), "--hosts", str(site.folder / "hosts")]
    return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "harness", *arguments, *where]


def on_head(site: Site, *arguments: str) -> Finished:
    return site.cluster.run(*command(site, *arguments))


def sums(site: Site, node: str, folder: Path) -> list[str]:
    """The checksums of all files below a folder but bytecode, as a node or the head sees them."""
    find = ["find", "-L", str(folder), "-type", "f", "-not", "-name", "*.pyc", "-exec", "sha256sum", "{}", "+"]
    done = site.cluster.run(*find) if node == "head" else site.cluster.exec(node, *find)
    return sorted(done.succeeded().stdout.splitlines())


@pytest.mark.slow
def test_machines_that_have_nothing_get_an_environment_and_harness_and_are_measured(
    site: Site, environment: Callable[..., Path]
) -> None:
    folder = environment("mpi4py").parents[1]
    kernel = ("kernel", "allreduce", "--backend", "mpi4py", "--bytes", "1MiB", "--nodes", "2", "--threads", "1")
    few = ("--warmup", "1", "--steps", "3", "--repeats", "1", "--output", str(site.folder / "runs"))
    with hidden(site, "node1 node2", folder, ROOT):
        copied = on_head(site, "env", "build", "mpi4py").succeeded().stdout.splitlines()[1:]
        assert sorted(line[:17] for line in copied) == ["public-1: copied ", "public-2: copied "]
        on_head(site, *kernel, *few).succeeded()
        changed = next(folder.glob("lib/python3.*/site-packages/mpi4py/__init__.py"))
        site.cluster.exec("node2", "truncate", "--size=1", str(changed)).succeeded()
        again = on_head(site, "env", "build", "mpi4py").succeeded().stdout.splitlines()[1:]
        assert sorted(again) == [
            "public-1: complete",
            f"public-2: copied 1 file, {changed.stat().st_size / 1e6:.1f} MB",
        ]
        assert sums(site, "node1", folder) == sums(site, "node2", folder) == sums(site, "head", folder)


def test_a_machine_without_the_python_of_an_environment_is_named(
    site: Site, environment: Callable[..., Path], wording: Wording
) -> None:
    python = environment("mpi4py").resolve()
    with hidden(site, "node2", python.parent):
        done = on_head(site, "env", "build", "mpi4py")
    assert done.stdout.splitlines()[1:] == ["public-1: complete"]
    wording("no Python").ended(done, 1, PYTHON=python)


def test_a_machine_out_of_reach_is_named_and_the_others_get_their_copy(
    site: Site, images: Path, wording: Wording
) -> None:
    site.hosts("public-1 10.77.0.1", "public-9 10.77.0.99")
    with hidden(site, "node1", images):
        done = on_head(site, "data", "copy", str(images))
        assert sums(site, "node1", images) == sums(site, "head", images)
    assert done.stdout.startswith("public-1: copied 16 files, ")
    wording("data copy").ended(done, 1)


def test_a_wrong_request_is_refused_before_anything_is_built(site: Site, cache: Path, wording: Wording) -> None:
    (site.folder / "empty").mkdir()
    for request in ("data copy missing", "data copy empty"):
        done = on_head(site, "data", "copy", str(site.folder / request.split()[-1]))
        wording(request).refused(done, HERE=site.folder)
    site.hosts("-oProxyCommand=evil")
    wording("env build mpi4py").refused(on_head(site, "env", "build", "mpi4py"), HERE=site.folder)
    assert not cache.exists()


def test_an_interrupted_copy_leaves_no_process_and_goes_on_with_the_same_command(site: Site) -> None:
    data = site.folder / "it's $HOME"  # no shell may take this for more than a name
    data.mkdir()
    for number in range(40):
        (data / f"shard-{number}").write_bytes(os.urandom(4_000_000))
    (data / "linked").symlink_to(data / "shard-0")
    with hidden(site, "node1 node2", data):
        copying = site.cluster.popen(*command(site, "data", "copy", str(data)), stdout=PIPE, stderr=PIPE)
        site.cluster.wait(lambda: len(sums(site, "node1", data)) > 3, "a few files are there")
        copying.send_signal(signal.SIGTERM)
        assert (copying.communicate(timeout=PATIENCE_S), copying.returncode)[1] == 130
        site.nothing_is_left()
        done = on_head(site, "data", "copy", str(data)).succeeded()
        # On a busy machine all may have come to a host before the first command heard of its end.
        sent = [int(word) for line in done.stdout.splitlines() for word in line.split()[2:3] if word.isdigit()]
        assert len(sent) <= 2 and sum(sent) < 2 * 41, "files that had come were sent again"
        assert sums(site, "node1", data) == sums(site, "node2", data) == sums(site, "head", data)
