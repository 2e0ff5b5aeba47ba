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


def specs(spec: RunSpec, backend: Backend, nodes: int) -> list[RunSpec]:
    """The specs that may check a run's nodes, the best first: over its own transport, if that has the kernel, or others.

    ``spec`` is complete. Raises InvalidInput for an emulated device, and for a single node.
    """
    if spec.emulated:
        raise InvalidInput(f"--preflight: nodes are checked on real devices, and --device is {spec.device}")
    if nodes < 2:
        raise InvalidInput(f"--preflight: --nodes {nodes} has nothing to compare with; give 2 or more")
    device = variant_of(spec.device)
    others = [other for other in working() if KERNEL in other.kernels and other is not backend]
    ways: list[dict[str, object]] = [{"backend": other.name} for other in others if device in other.devices]
    if KERNEL in backend.kernels:
        ways.insert(0, {"backend": backend.name, "transport": spec.transport, "mpi": spec.mpi})
    options = {
        "nodes": nodes,
        "devices_per_node": spec.devices_per_node if device == "cuda" else 1,
        "device": spec.device,
        "threads": spec.threads,
        "timeout_s": min(spec.timeout_s, TIMEOUT_S),
    }
    subject = Subject(KernelSizes.of(KERNEL))
    return [checking for way in ways for checking in subject.specs(options | way, device, **subject.protocol)]


def outcome(run_dir: Path) -> Preflight | None:
    """The result of the check before the run of a run directory; None if nothing was to be checked."""
    folder = run_dir / PREFLIGHT
    try:
        spec = checked(RunSpec, json.loads((folder / SPEC).read_text()))
    except FileNotFoundError:
        return None
    problem, slow = "it has not ended", None
    if (folder / KernelRecord.file_name).exists():
        record = KernelRecord.read(folder)
        problem = (record.reason or "").partition("\n")[0]
        slow = pairs(record) if record.status == "completed" else None
    return Preflight(backend=spec.backend, transport=str(spec.transport), pairs=slow, problem=problem)
