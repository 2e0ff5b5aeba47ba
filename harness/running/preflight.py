"""The check of nodes and links before a run: a run of the kernel ``pairs``, whose run directory is within the run's own."""

import json
from pathlib import Path

from harness.analysis.slow import pairs
from harness.core.backend import Backend, working
from harness.core.spec import KernelSizes, RunSpec, variant_of
from harness.core.subject import Subject
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord
from harness.records.pairs import Preflight
from harness.running.notes import PREFLIGHT
from harness.worker.agent.seating import SPEC

KERNEL = "pairs"
TIMEOUT_S = 600.0


def specs(spec: RunSpec, own: Backend, nodes: int) -> list[RunSpec]:
    """What may check the nodes of a run, the best first: over its own transport, if that has the kernel, or over others.

    ``spec`` is complete. Raises InvalidInput for a device that nothing is measured on, and for a single node.
    """
    if spec.emulated:
        raise InvalidInput(f"--preflight: nodes are checked on real devices, and --device is {spec.device}")
    if nodes < 2:
        raise InvalidInput(f"--preflight: --nodes {nodes} has nothing to compare with; give 2 or more")
    device = variant_of(spec.device)
    others = [each for each in working() if KERNEL in each.kernels and each is not own and device in each.devices]
    ways: list[dict[str, object]] = [{"backend": each.name} for each in others]
    if KERNEL in own.kernels:
        ways.insert(0, {"backend": own.name, "transport": spec.transport, "mpi": spec.mpi})
    options = {
        "nodes": nodes,
        "devices_per_node": spec.devices_per_node if device == "cuda" else 1,
        "device": spec.device,
        "threads": spec.threads,
        "timeout_s": min(spec.timeout_s, TIMEOUT_S),
    }
    pairs_of_nodes = Subject(KernelSizes.of(KERNEL))
    return [
        checking for way in ways for checking in pairs_of_nodes.specs(options | way, device, **pairs_of_nodes.protocol)
    ]


def outcome(run_dir: Path) -> Preflight | None:
    """What the check before the run of a run directory found; None if nothing was to be checked."""
    folder = run_dir / PREFLIGHT
    try:
        spec = checked(RunSpec, json.loads((folder / SPEC).read_text()))
    except FileNotFoundError:
        return None
    problem, found = "it has not ended", None
    if (folder / KernelRecord.file_name).exists():
        record = KernelRecord.read(folder)
        problem = (record.reason or "").partition("\n")[0]
        found = pairs(record) if record.status == "completed" else None
    return Preflight(backend=spec.backend, transport=str(spec.transport), pairs=found, problem=problem)
