"""What befalls a rank: every fault, in every way of training, under every launcher, to every kind of process.

CI runs a choice in which each pair of these occurs (``tests.pairwise``), where a way is three: its backend, its framework
and its transport. ``make test-all`` runs every combination. Here are those on one machine (``local``);
``tests/cluster/test_pairs.py`` has the launchers that need a cluster.
"""

from dataclasses import astuple

import pytest

from tests.pairwise import Combination, combinations, cover
from tests.parity.conftest import WAYS, Way

# Deaths before a rank has met the others, in the warm-up, in the window, and after all times are taken; and errors.
DEATHS = ("joining", "warmup", "window", "closing")
ERRORS = ("bad image", "divergence")
FAULTS = (*DEATHS, *ERRORS)
LAUNCHERS = ("local", "slurm", "ssh")
VICTIMS = ("worker-0", "worker-1", "ps-0")


def possible(way: Way, fault: str, launcher: str, victim: str) -> bool:
    """Whether there is such a process, and whether it matters which one it is."""
    if fault in ERRORS:
        return victim == "worker-0"  # every worker reads images and computes losses
    if fault == "joining":
        return victim == "worker-1"
    return victim != "ps-0" or way.has_servers


def on_this_machine(way: str, fault: str, victim: str) -> tuple[Way, str, str, str]:
    return (Way(*way.split(":")), fault, "local", victim)


# Those that the default tests run, on this machine: every fault, and each kind of backend with one of them, but for
# TensorFlow's servers, which take the longest to start.
QUICK = [
    on_this_machine("pytorch:torch:gloo", "warmup", "worker-1"),
    on_this_machine("pytorch:torch:mpi", "window", "worker-1"),
    on_this_machine("torch_parameter_server:torch:gloo", "window", "ps-0"),
    on_this_machine("horovod:torch:gloo", "window", "worker-1"),
    on_this_machine("pytorch:torch:gloo", "closing", "worker-0"),
    on_this_machine("caffe2:caffe2:gloo", "joining", "worker-1"),
    on_this_machine("pytorch:torch:gloo", "bad image", "worker-0"),
    on_this_machine("horovod:torch:mpi", "divergence", "worker-0"),
]


def factors(way: Way, *others: str) -> Combination:
    """Backend, framework, transport, fault, launcher and victim."""
    return (*astuple(way), *others)


EVERY = combinations(WAYS, FAULTS, LAUNCHERS, VICTIMS, possible=possible)
_OF = {factors(*values): values for values in EVERY}
CHOICE = [_OF[chosen] for chosen in cover(_OF, [factors(*values) for values in QUICK])]


def each(names: str, launchers: tuple[str, ...], *faults: str) -> pytest.MarkDecorator:
    """Parametrise a test with the combinations of some launchers and faults; ``names`` are those that it takes."""
    marks = {values: [pytest.mark.slow, pytest.mark.exhaustive] for values in EVERY}
    marks |= {values: [pytest.mark.slow] for values in CHOICE}
    marks |= {values: [] for values in QUICK}
    wanted = names.split(", ")
    parameters = []
    for values in EVERY:
        named = dict(zip(("way", "fault", "launcher", "victim"), values, strict=True))
        if named["launcher"] in launchers and named["fault"] in faults:
            chosen = [named[name] for name in wanted]
            parameters.append(pytest.param(*chosen, marks=marks[values], id="-".join(map(str, chosen))))
    return pytest.mark.parametrize(wanted, parameters)
