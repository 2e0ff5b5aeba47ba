"""The hosts that the nodes of a plan turned out to be, and a program's place among them, where it is not ours.

A plan for a batch system is made before there is an allocation, and numbers its nodes. Once a repeat has its hosts they are
written to ``repeat-K/hosts.json``, and whoever reads the plan for that repeat reads it through here.

A program gets variables (TensorFlow's TF_CONFIG, torch.distributed's RANK and its like), and in its arguments names in
braces, such as ``{rank}``, are replaced. Nothing passes through a shell. Python 3.6.
"""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from harness.files import write_atomically

# Files of a run directory.
SPEC = "spec.json"  # is locked by whoever carries out the run here
PLAN = "plan.json"
SUBMISSION = "submission.json"  # its jobs, and what its record is called

DIGEST_S = 60  # for a platform to tell the digest of an image
BRACES = re.compile(r"\{(\w+)\}")
HOLDING = ["sleep", "infinity"]  # in place of a program, on nodes that another one starts its processes on


class Hosts(NamedTuple):
    """The hosts of one repeat: (name, address) by the plan's node numbers, and the batch job that got them.

    ``restart`` counts how often the job was requeued before. ``started`` is ISO 8601 in UTC. ``digest`` is that of the
    image that processes run in, "" if it is not known. Tasks have to find the variables ``promised`` and most of so many
    ``cpus``, as the job does.
    """

    nodes: List[Tuple[str, str]]
    started: str
    job: Optional[str] = None
    restart: int = 0
    digest: str = ""
    promised: Optional[Dict[str, str]] = None
    cpus: int = 0

    def write(self, repeat_dir: Path) -> None:
        write_atomically(repeat_dir / "hosts.json", json.dumps(self._asdict()))

    @classmethod
    def read(cls, repeat_dir: Path) -> "Optional[Hosts]":
        """The hosts of a repeat, None where the plan itself names them."""
        try:
            fields = json.loads((repeat_dir / "hosts.json").read_text())
        except FileNotFoundError:
            return None
        return cls(**{**fields, "nodes": [(name, address) for name, address in fields["nodes"]]})


def digest_of(container: Mapping[str, Any]) -> str:
    """The digest of a plan's image: of its file, or as the platform says; "" where nobody does."""
    image = Path(container["image"])
    try:
        if image.is_file():
            total = hashlib.sha256()
            with image.open("rb") as content:
                for block in iter(lambda: content.read(1 << 20), b""):
                    total.update(block)
            return "sha256:" + total.hexdigest()
        if container["digest"]:
            answer = subprocess.run(
                container["digest"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=DIGEST_S, check=True
            )
            return answer.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    except (OSError, subprocess.SubprocessError):
        pass
    return ""


def seated(plan: Dict[str, Any], hosts: Optional[Hosts]) -> Dict[str, Any]:
    """``plan`` (the JSON of ``plan.json``) with every process on its host."""
    if hosts is None:
        return plan
    processes = []
    for process in plan["processes"]:
        name, address = hosts.nodes[process["node"]]
        processes.append({**process, "host": name, "address": address})
    return {**plan, "processes": processes}


def folder_of(run_dir: Path, repeat: int) -> Path:
    return run_dir / f"repeat-{repeat}"


def plan_of(run_dir: Path, repeat: int) -> Dict[str, Any]:
    """The plan of a run directory, with every process on its host in this repeat."""
    return seated(json.loads((run_dir / PLAN).read_text()), Hosts.read(folder_of(run_dir, repeat)))


def name_of(process: Dict[str, Any]) -> str:
    """The name of the files of a process of the plan, for example ``worker-0``."""
    return f"{process['role']}-{process['rank']}"


def host_file(plan: Dict[str, Any]) -> str:
    """The host of every process of a seated plan, one per line: what Slurm's ``arbitrary`` distribution reads."""
    return "".join(process["host"] + "\n" for process in plan["processes"])


def place(plan: Mapping[str, Any], process: Mapping[str, Any]) -> Dict[str, str]:
    """The value of each name in braces in a command of ``process``, one of those of the seated ``plan``."""
    processes: List[Dict[str, Any]] = plan["processes"]
    listening: Dict[str, List[str]] = {"worker": [], "ps": []}
    for each in processes:
        listening[each["role"]].append(f"{each['address']}:{each['port']}")
    addresses = {each["node"]: each["address"] for each in processes}
    beside = [each["rank"] for each in processes if each["role"] == process["role"] and each["node"] == process["node"]]
    first = processes[0]
    return {
        "rank": str(process["rank"]),
        "world_size": str(len(listening["worker"])),
        "local_rank": str(beside.index(process["rank"])),
        "local_world_size": str(len(beside)),
        "node": str(process["node"]),
        "nodes": str(len(addresses)),
        "job_name": process["role"],
        "task_index": str(process["rank"]),
        "worker_hosts": ",".join(listening["worker"]),
        "ps_hosts": ",".join(listening["ps"]),
        "hosts": ",".join(addresses[node] for node in sorted(addresses)),
        "slots": ",".join(f"{addresses[node]}:{len(beside)}" for node in sorted(addresses)),
        "address": process["address"],
        "port": str(process["port"]),
        "master_addr": first["address"],
        "master_port": str(first["port"]),
    }


def arguments(plan: Mapping[str, Any], process: Mapping[str, Any]) -> List[str]:
    """The command of ``process``, with its names in braces replaced; braces around anything else are left alone."""
    if plan["details"]["once"] and process["index"] > 0:
        return HOLDING
    names = place(plan, process)
    return [BRACES.sub(lambda match: names.get(match[1], match[0]), word) for word in plan["details"]["command"]]


def variables(plan: Mapping[str, Any], process: Mapping[str, Any]) -> Dict[str, str]:
    """The variables that tell ``process`` its place. A rank of torch.distributed is a worker."""
    names = place(plan, process)
    cluster = {"worker": names["worker_hosts"].split(",")}
    if names["ps_hosts"]:
        cluster["ps"] = names["ps_hosts"].split(",")
    task = {"type": process["role"], "index": process["rank"]}
    env = {"MASTER_ADDR": names["master_addr"], "MASTER_PORT": names["master_port"]}
    if plan["details"]["once"]:
        return env  # the program's own launcher hands out the places
    env.update(WORLD_SIZE=names["world_size"], TF_CONFIG=json.dumps({"cluster": cluster, "task": task}))
    if process["role"] == "worker":
        env.update(RANK=names["rank"], LOCAL_RANK=names["local_rank"], LOCAL_WORLD_SIZE=names["local_world_size"])
    return env
