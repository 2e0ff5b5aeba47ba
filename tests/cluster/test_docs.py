"""docs/cluster.md word for word, on the virtual cluster, by somebody who has never been there."""

import os
import re
import sys
from pathlib import Path

import pytest

from harness.environments import cache_folder
from tests.conftest import ROOT, Finished

from .virtual import VirtualCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
# The virtual nodes' GPUs are none, and their processors are two for all of them.
EDITOR = r"""#!/bin/sh
sed -i '/^\[\[systems.partitions.devices\]\]/,/^num_devices/d' "$1"
"""
SMALL = "--model pointwise --batch-size 2 --image-size 32 --threads 1 --warmup 1 --repeats 1"


def commands(title: str) -> str:
    """The commands of a section of the page, without what they print."""
    section = re.search(rf"^## \d\. {title}.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section
    blocks = re.findall(r"^```sh\n(.*?)^```", section[0], re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return "\n".join(line for line in lines if re.match(r"(harness|mkdir|echo|\$EDITOR) ", line))


class Newcomer:
    """A login shell on the head node: a home, an editor, and harness on PATH."""

    def __init__(self, cluster: VirtualCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        for name, text in (
            ("harness", f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m harness "$@"'),
            ("editor", EDITOR),
        ):
            (home / name).write_text(text)
            (home / name).chmod(0o755)
        (home / "studies").symlink_to(ROOT / "studies")
        self.environ = {
            "HOME": str(home),
            "PATH": f"{home}:{os.environ['PATH']}",
            "EDITOR": str(home / "editor"),
            "HARNESS_CACHE": str(cache_folder()),
            "HARNESS_SITE": "",
            "XDG_CONFIG_HOME": "",
        }

    def __call__(self, script: str) -> Finished:
        script = re.sub("^harness run ", f"harness run {SMALL} ", script, flags=re.MULTILINE)
        return self.cluster.run("bash", "-ec", f"cd {self.home}\n{script}", **self.environ).succeeded()


def test_your_cluster_in_15_minutes(cluster: VirtualCluster, tmp_path: Path) -> None:
    newcomer = Newcomer(cluster, tmp_path)
    described = newcomer(commands("Say what your cluster is")).stdout
    assert described.count("ok     mycluster:normal") == 2  # by init and by check
    assert "runs take place at mycluster:normal: its hostnames match this host, head" in described

    planned = newcomer(commands("Look before you leap"))
    assert "#SBATCH --partition=normal\n#SBATCH --account=PROJECT\n" in planned.stdout
    assert planned.stderr.startswith("harness: runs at mycluster:normal: ")

    measured = newcomer(commands("Two nodes")).stdout
    for line in ("gradients", "traffic", "checks"):
        assert re.search(rf"^ *{line} ", measured, re.MULTILINE), measured

    back = newcomer(commands("Leave and come back")).stdout
    assert "nothing to cancel" in back
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2

    scripts = newcomer(re.sub(r"$", " --dry-run", commands("Measure what you came for"), flags=re.MULTILINE)).stdout
    assert "runs compared on the same 8 nodes" in scripts
    assert re.search(r"^\d+ points: \d+ new; \d+ jobs", scripts, re.MULTILINE), scripts
