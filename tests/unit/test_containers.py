"""Images: which words open them, what refuses them, and what runs beside them on the Python of an old system."""

import ast
import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch import containers
from harness.running.prepare import Place
from harness.running.request import jobs_of
from harness.running.run import Run
from harness.sites import site as sites
from harness.sites.file import Container, read
from harness.worker.agent.seating import digest_of
from tests.conftest import ROOT, Harness, shell_program
from tests.wording import Case, Wording, cases

OUTPUT = Path("/scratch/runs")
WORDS = {
    "Apptainer": "apptainer exec --bind=/data:/data --bind=/a:/b --nv --own IMAGE",
    "Singularity": "singularity exec --bind=/data:/data --bind=/a:/b --nv --own IMAGE",
    "Sarus": "sarus run --mount=type=bind,source=/data,destination=/data --mount=type=bind,source=/a,destination=/b "
    "--own IMAGE",
    "Shifter": "shifter --image=IMAGE --volume=/data:/data --volume=/a:/b --module=gpu --own --",
    "Podman-HPC": "podman-hpc run --rm --network=host --ipc=host --pid=host --env-host --volume=/data:/data --volume=/a:/b "
    "--gpu --own IMAGE",
    "Charliecloud": "ch-run --bind=/data:/data --bind=/a:/b --own IMAGE --",
    "Bubblewrap": "bwrap --die-with-parent --ro-bind IMAGE / --dev-bind /dev /dev --proc /proc --ro-bind /sys /sys "
    "--bind /data /data --bind /a /b --own --",
    "Docker": "docker run --rm --init --network=host --ipc=host --env=OMP_NUM_THREADS --volume=/data:/data --volume=/a:/b "
    "--gpus=all --own IMAGE",
    "Pyxis": "--container-image=IMAGE --container-mounts=/data:/data,/a:/b --own",
    "CE": "--environment=/run/container.toml --own",
    "uenv": "--uenv=IMAGE --own",
}


def test_each_platform_opens_an_image_in_its_own_words() -> None:
    opened = {}
    for platform in containers.platforms().values():
        own = Container(platform=platform.type, image="IMAGE", mounts=("/a:/b",), options=("--own",))
        inside = containers.within(own, ["/data"], Path("/run"), True, ["OMP_NUM_THREADS"])
        assert bool(inside["srun"]) != bool(inside["command"])
        opened[platform.type] = " ".join([*inside["srun"], *inside["command"]])
        if platform.file:
            edf = tomllib.loads(inside["file"])
            assert edf == {"base_environment": ["IMAGE"], "mounts": ["/data:/data", "/a:/b"]}
    assert opened == WORDS


def test_a_platform_is_a_file_of_a_few_lines() -> None:
    for file in (ROOT / "jobs" / "containers").iterdir():
        assert len(file.read_text().splitlines()) <= 60


def prepared(place: Place, **fields: object) -> Run:
    return place.prepare(RunSpec.validated(backend="pytorch", nodes=2, **fields))


def test_a_job_opens_the_image_for_its_tasks_and_runs_beside_it_on_the_systems_python() -> None:
    place = Place("alps", output=OUTPUT, container="pyxis:nvcr.io#nvidia/pytorch:24.03-py3", mounts=("/capstor",))
    run = prepared(place)
    ((_, script),) = jobs_of([run], place.options)
    measure = script.splitlines()[-2]
    assert " python3 python3 '--container-image=nvcr.io#nvidia/pytorch:24.03-py3' --container-mounts=" in measure
    assert f"{ROOT}:{ROOT},{OUTPUT}:{OUTPUT},/capstor:/capstor" in measure
    assert run.plan.processes[0].argv[0] == "python3"


PROFILE = """
[[systems]]
name = "mine"
modules_system = "lmod"
[[systems.partitions]]
name = "gpu"
scheduler = "slurm"
launcher = "srun"
environs = ["ngc", "tensorflow"]
processor = { num_cpus = 8, num_cpus_per_core = 1 }
[[systems.partitions.container_platforms]]
type = "Apptainer"
modules = ["apptainer"]
env_vars = [["APPTAINER_CACHEDIR", "$SCRATCH"]]
[[environments]]
name = "ngc"
[environments.extras]
backends = ["pytorch"]
python = "/opt/conda/bin/python"
container = { image = "docker://nvcr.io/nvidia/pytorch:24.03-py3", options = ["--cleanenv"] }
[[environments]]
name = "tensorflow"
[environments.extras]
container = { platform = "Sarus", image = "nvidia/tensorflow" }
"""


def test_an_environment_of_a_site_has_an_image_and_its_partition_the_platform(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(PROFILE)
    place = Place(str(profile), output=OUTPUT)
    run = prepared(place)
    assert run.plan.container and run.plan.container["command"][:2] == ["apptainer", "exec"]
    assert run.plan.container["command"][-2:] == ["--cleanenv", "docker://nvcr.io/nvidia/pytorch:24.03-py3"]
    assert run.python == "/opt/conda/bin/python"
    ((_, script),) = jobs_of([run], place.options)
    assert "\nload apptainer\n" in script and '\nexport APPTAINER_CACHEDIR="$SCRATCH"\n' in script
    other = Place(str(profile), environ="tensorflow", output=OUTPUT).prepare(RunSpec.validated(backend="horovod"))
    assert other.plan.container and other.plan.container["command"][0] == "sarus"
    typed = prepared(Place(str(profile), output=OUTPUT, container="docker://other"))  # of the partition's platform
    assert typed.plan.container and typed.plan.container["image"] == "docker://other"


@cases
def test_images_that_cannot_be_opened_there_are_refused(refused: Harness, case: Case) -> None:
    case.refused(refused("run", "--backend", "pytorch", "--dry-run", *case.words()))


def test_machines_that_are_reached_with_ssh_run_no_images(tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "hosts").write_text("one\ntwo\n")
    ssh = Place("ec2", hosts=tmp_path / "hosts", dry_run=True, container="apptainer:IMAGE.sif")
    with wording("ssh").raises(InvalidInput):
        ssh.prepare(RunSpec.validated(backend="pytorch", nodes=2, threads=1))


def test_the_image_is_looked_into_before_a_run(
    tmp_path: Path, refused: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command that opens it; here a program takes its place that has a Python without PyTorch."""
    shell_program(tmp_path / "bin" / "apptainer", 'while [ "$1" != IMAGE.sif ]; do shift; done; shift; exec "$@"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    bare = ("--container", "apptainer:IMAGE.sif", "--env", sys.executable, "--nodes", "1")
    done = refused("run", "--backend", "pytorch", *bare, "--output", str(tmp_path / "runs"))
    assert done.code == 2 and f"IMAGE.sif: {sys.executable} is a Python without torch" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_digest_is_that_of_a_file_or_what_the_platform_says(tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(b"image")
    known = "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"
    assert digest_of({"image": str(image), "digest": []}) == known
    assert digest_of({"image": "name", "digest": ["echo", "sha256:1"]}) == "sha256:1"
    for silent in (["false"], ["no-such-program"], []):
        assert digest_of({"image": "name", "digest": silent}) == ""


def test_site_init_finds_the_platforms_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shell_program(tmp_path / "srun", "echo '      --environment=FILE  [CE] environment'")
    for name in ("apptainer", "docker", "bwrap"):
        shell_program(tmp_path / name, "")
    assert containers.available() == ["Apptainer", "CE"]
    assert containers.lacking("Pyxis") == "Pyxis: srun has no --container-image"
    assert containers.lacking("Sarus") == "Sarus: no `sarus` on PATH"


def test_a_centres_own_reframe_file_is_taken_and_says_what_no_run_needs(tmp_path: Path) -> None:
    partition = {
        "name": "gpu",
        "scheduler": "slurm",
        "launcher": "mpirun",
        "environs": ["default"],
        "extras": {"mem_per_node": 480000, "mpi": "pmix"},
        "sched_options": {"use_nodes_option": True},
        "container_platforms": [{"type": "Singularity", "modules": ["singularity"], "env_vars": []}],
        "resources": [{"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]}],
    }
    system = {"name": "s", "modules_system": "lmod", "stagedir": "/scratch", "partitions": [partition]}
    environment = {"name": "default", "cc": "cc", "target_systems": ["*"]}
    file = tmp_path / "s.json"
    whole = {"systems": [system], "environments": [environment], "logging": [{"level": "debug"}], "general": []}
    file.write_text(json.dumps(whole))
    taken = read(file)
    assert not taken.mistakes
    left_out = "cc extras.mem_per_node general launcher~mpirun logging sched_options stagedir target_systems"
    assert [name.replace(" ", "~") for name in taken.left_out] == left_out.split()
    site = sites.find(str(file))
    assert site.launcher == "srun" and site.extras.mpi == "pmix"
    assert site.gpu_options(4) == ["--gpus-per-node=4"] and site.usual_platform == "Singularity"
    partition["extras"] = {"mpj": "pmix"}  # a slip
    file.write_text(json.dumps(whole))
    assert "mpj" in str(read(file).mistakes[0])


def test_what_runs_beside_an_image_is_read_by_python_3_6() -> None:
    """``from __future__ import annotations`` is of 3.7, and so are subprocess's ``text`` and ``capture_output``."""
    for name in ("worker/agent/seat.py", "worker/agent/seating.py", "worker/bootstrap.py", "files.py", "__init__.py"):
        text = (ROOT / "harness" / name).read_text(encoding="utf-8")
        ast.parse(text, feature_version=(3, 6))
        later = ("import annotations", "text=True", "capture_output", "missing_ok", "from dataclasses")
        assert not [word for word in later if word in text], name


def test_a_run_takes_place_in_an_image_on_this_machine(harness: Harness, tmp_path: Path) -> None:
    """The image is this machine's own root, which is read-only there."""
    assert shutil.which("bwrap"), "make cluster-packages installs bubblewrap"
    program = "import os; print('images/sec:', 10, flush=True); open('/etc/written', 'w')"
    launch = ("launch", "--container", "bubblewrap:/", "--nodes", "2", "--output", str(tmp_path / "runs"))
    done = harness(*launch, "--", sys.executable, "-c", program)
    assert done.code == 1 and "Read-only file system: '/etc/written'" in done.stderr
    assert not Path("/etc/written").exists()
