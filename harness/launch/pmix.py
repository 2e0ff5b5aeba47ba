"""An MPI world for processes that this launcher starts itself, where the library is Open MPI: it knows PMIx alone.

PMIx has no line protocol that a launcher could speak, only libraries. So ``prterun`` of Open MPI's own PRRTE is the
server. It wants to start the ranks itself, and starts a shell in the place of each, which notes the variables that it was
given for its rank and waits. The real process gets these variables from the launcher, and the server takes it for the rank.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.core.text import last_line
from harness.errors import RunFailed

# The server ends with its shells, and these when the launcher no longer holds the other end of the pipe open. They open it
# before they note anything, so that the folder may go as soon as all is noted. What is not for a rank, secrets among it,
# is not noted.
STAND_IN = (
    """exec <"$0/held" && env -0 | grep -zE '^(PMIX|PRTE)_' >"$0/$PMIX_RANK.part" """
    """&& mv "$0/$PMIX_RANK.part" "$0/$PMIX_RANK" && exec cat"""
)
ENDED_WITH_LAUNCHER = ("setpriv", "--pdeathsig", "TERM")  # of util-linux: also when the launcher is killed
STARTED_S = 60.0
ENDED_S = 5.0
POLL_S = 0.02
# What would tell the server that it is in somebody else's job: it would start the shells there.
NOT_FOR_THE_SERVER = ("SLURM", "PMI", "PRTE", "OMPI")


class PmixWorld:
    """The world of ``size`` ranks that ``server`` keeps. Raises RunFailed if it does not start.

    Until it has started, its files are in ``repeat_dir``; after that a launcher that is killed leaves none.
    """

    def __init__(self, server: Path, size: int, repeat_dir: Path) -> None:
        self._folder, self._log = repeat_dir / "pmix", repeat_dir / "logs" / "pmix.log"
        folder = self._folder
        folder.mkdir(mode=0o700)  # its variables let whoever reads them speak to the server as a rank
        os.mkfifo(folder / "held")
        self._held: int | None = os.open(folder / "held", os.O_RDWR)  # does not wait for readers
        ranks = ["--np", str(size), "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
        command = [*ENDED_WITH_LAUNCHER, str(server), "--allow-run-as-root", *ranks]
        env = {name: value for name, value in os.environ.items() if not name.startswith(NOT_FOR_THE_SERVER)}
        try:
            with self._log.open("wb") as log:
                self._server = subprocess.Popen(
                    [*command, "/bin/sh", "-c", STAND_IN, str(folder)],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._held)
            shutil.rmtree(folder)
            raise RunFailed(f"Open MPI's PMIx server cannot be started: {error.filename}: {error.strerror}") from None
        try:
            self._variables = self._noted(size)
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:
            self.close()
            raise

    def member(self, rank: int) -> tuple[Mapping[str, str], None]:
        """A rank's variables; it inherits nothing."""
        return self._variables[rank], None

    def close(self) -> None:
        """End the server and its shells, and remove the files of a start that failed."""
        if self._held is None:
            return
        os.close(self._held)
        self._held = None
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(ENDED_S)
        for number in (signal.SIGTERM, signal.SIGKILL):  # what ends by itself removes its files
            if self._server.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._server.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._server.wait(ENDED_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _noted(self, size: int) -> list[Mapping[str, str]]:
        """The variables of every rank, once the server has named all. Raises RunFailed."""
        files = [self._folder / str(rank) for rank in range(size)]
        deadline = time.monotonic() + STARTED_S
        while not all(file.exists() for file in files):
            if self._server.poll() is not None or time.monotonic() > deadline:
                words = last_line(self._log.read_text(errors="replace"))
                raise RunFailed(f"Open MPI's PMIx server names no ranks: {words}")
            time.sleep(POLL_S)
        texts = (file.read_bytes().decode(errors="surrogateescape") for file in files)
        return [dict(line.split("=", 1) for line in text.split("\0") if line) for text in texts]
