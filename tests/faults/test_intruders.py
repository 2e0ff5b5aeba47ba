"""A process that is not of the run meets its ranks before they meet each other."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.worker.network import listen
from tests.conftest import FEW_STEPS
from tests.faults.conftest import Begin

# As PyTorch's own client does it, with an address and a port alone.
AS_RANK_1 = """
import socket, sys, time
from datetime import timedelta
import torch.distributed as dist
port = int(sys.argv[1])
while True:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
        break
    except OSError:
        time.sleep(0.02)
store = dist.TCPStore("127.0.0.1", port, 2, False, timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=1, world_size=2, timeout=timedelta(seconds=60))
"""


@pytest.mark.slow
def test_a_rank_in_place_of_another_fails_the_run_which_names_that_as_a_cause(
    begin: Begin, environment: Callable[[str], Path]
) -> None:
    python = environment("pytorch")
    with listen("127.0.0.1", 0) as free:
        port = str(free.getsockname()[1])
    with subprocess.Popen([python, "-c", AS_RANK_1, port]) as intruder:
        try:
            run = begin("pytorch", *FEW_STEPS, "--port", port)
            run.send("worker-1", signal.SIGSTOP)  # so that the intruder is the first
            run.end()
        finally:
            intruder.kill()
    run.failed_saying(
        "no other rank had ended, so a process of somebody else may have taken its place (docs/safety.md)"
    )
