"""How a program that is not ours is told its place in a run. Pure: for its start, and for a dry run.

It gets variables (TensorFlow's TF_CONFIG, torch.distributed's RANK and its like), and in its arguments names in braces,
such as ``{rank}``, are replaced. Nothing passes through a shell. Python 3.9; standard library.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping

BRACES = re.compile(r"\{(\w+)\}")
HOLDING = ["sleep", "infinity"]  # in place of a program, on nodes that another one starts its processes on


def place(plan: Mapping[str, Any], process: Mapping[str, Any]) -> Dict[str, str]:
    """What each name in braces stands for in a command of ``process``, one of those of the seated ``plan``."""
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
    told = {"MASTER_ADDR": names["master_addr"], "MASTER_PORT": names["master_port"]}
    if plan["details"]["once"]:
        return told  # the program's own launcher hands out the places
    told.update(WORLD_SIZE=names["world_size"], TF_CONFIG=json.dumps({"cluster": cluster, "task": task}))
    if process["role"] == "worker":
        told.update(RANK=names["rank"], LOCAL_RANK=names["local_rank"], LOCAL_WORLD_SIZE=names["local_world_size"])
    return told
