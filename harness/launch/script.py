"""The batch job: what ``sbatch`` reads. One template serves every backend; two jobs differ only in values."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.parts import part
from harness.core.text import templates
from harness.errors import InvalidInput
from harness.launch.watch import CLOSING_S
from harness.sites.site import VARIABLE

if TYPE_CHECKING:
    import jinja2

    from harness.sites.site import Site

WORKER = Path(__file__).parent.parent / "worker"
SETTING_UP_S = 120  # seconds allowed to a repeat besides its timeout, for srun, PMI and the host file
OPTION = re.compile(r"-{0,2}([a-zA-Z][a-z-]*)(?:[=\s]\s*([^\s'\"#\\;`$]+))?")

# Options that the job script sets by itself, and others that make sbatch submit something else than one job to be followed.
OWNED = {
    ("array", "a"): "an array is several jobs, and harness follows one; give --repeats to measure several times",
    ("clusters", "M"): "a job at another cluster cannot be followed from here; start harness there",
    ("nodes", "N"): "give --nodes",
    ("ntasks", "n", "ntasks-per-node"): "harness places the processes; give --nodes and --devices-per-node",
    ("output", "o", "error", "e"): "everything is in the run directory; give --output for the folder that it is in",
    ("oversubscribe", "s"): "nodes that other jobs use measure these as well; leave it out",
    ("test-only",): "nothing would be submitted; give --dry-run",
    ("wait", "W"): "harness waits by itself; give --no-wait if it shall not",
}

# The repeats of several runs that make a job: one of one run, all of one run, or all of the runs of one size.
Sharing = Literal["repeat", "run", "nodes"]


@dataclass(frozen=True)
class JobStep:
    """One repeat of one run within a job."""

    run_dir: str
    repeat: int
    nodes: int
    tasks: int
    mpi: str
    python: str
    timeout_s: float
    inside: tuple[str, ...] = ()  # of an image: srun's options, and the words before a command that runs in it

    @property
    def host_python(self) -> str:
        """The Python beside the tasks: of an image's host there may be the system's alone."""
        return "python3" if self.inside else self.python


@dataclass(frozen=True)
class BatchJob:
    """A batch job: its steps in order, the folder for its script and Slurm's output, and the ``part`` of several there."""

    name: str
    title: str
    folder: Path
    steps: tuple[JobStep, ...]
    part: str = ""

    @property
    def nodes(self) -> int:
        return max(step.nodes for step in self.steps)


@dataclass(frozen=True)
class JobOptions:
    """A person's requests to the scheduler."""

    options: tuple[str, ...] = ()  # such as --account=s123
    time_limit_s: float | None = None
    jobs: int = 1  # that the repeats are shared out among


def scheduler_option(text: str) -> str:
    """``account=s123`` or ``--account=s123`` as ``--account=s123``. Raises InvalidInput for other texts and OWNED ones."""
    # -pdebug is -p debug, while -partition is no option of sbatch.
    match = OPTION.fullmatch(re.sub(r"^-([a-zA-Z])(?=[^-\s=])", r"-\1 ", text.strip()))
    if not match:
        right = "must be an option of sbatch such as account=s123 or exclusive"
        raise InvalidInput(f"-J {text!r}: {'has a #, where a comment would begin' if '#' in text else right}")
    name, value = match.groups()
    for names, reason in OWNED.items():
        # sbatch takes the beginning of a long name for the name.
        if any(owned == name or (len(name) > 1 and owned.startswith(name)) for owned in names):
            raise InvalidInput(f"-J {text}: {reason}")
    dashes, between = ("-", " ") if len(name) == 1 else ("--", "=")
    return f"{dashes}{name}" if value is None else f"{dashes}{name}{between}{value}"


def expanding(value: str) -> str:
    """A site's variable for a shell, which is to expand ``$NAME`` and ``${NAME}`` in it and nothing else."""
    parts = enumerate(re.split(f"({VARIABLE.pattern})", value))
    return "".join(f'"{part}"' if number % 2 else shlex.quote(part) for number, part in parts if part) or "''"


def script(job: BatchJob, site: Site, asked: JobOptions, gpus_per_node: int) -> str:
    """The text of the batch script. Raises InvalidInput for a folder whose name Slurm cannot take."""
    if re.search(r"[\s%#'\"\\]", str(job.folder)):
        raise InvalidInput(f"--output {job.folder}: Slurm's file names can have no blanks, quotes, %, # or backslashes")
    usual_s = sum(step.timeout_s + SETTING_UP_S for step in job.steps)  # every step has ended then, or was ended
    limit_s = asked.time_limit_s or min(usual_s, site.time_limit_s or math.inf)
    gpus = site.gpu_options(gpus_per_node) if gpus_per_node else ()
    modules = () if site.modules_system == "nomod" else site.modules
    return _template().render(
        job=job,
        site=site,
        time_limit=slurm_time(limit_s),
        options=[*site.access, *gpus, *asked.options],
        modules=modules,
        promised=[*dict.fromkeys(name for name, _ in site.env_vars), *(["LOADEDMODULES"] if modules else [])],
        worker=str(WORKER),
        closing_s=int(CLOSING_S),
    )


def slurm_time(seconds: float) -> str:
    """Slurm's ``D-HH:MM:SS``, rounded up to a minute, as Slurm does."""
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


@cache
def _template() -> jinja2.Template:
    environment = templates(part("jobs"))
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["expanding"] = expanding
    return environment.get_template("job.sh.j2")
