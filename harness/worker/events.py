"""One events file per process: JSON lines that the controller reads while the run goes on. Never written in the window."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any


class Events:
    """Appends events to a file; each line is complete on disk before the process goes on."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)

    def emit(self, event: str, **fields: Any) -> None:
        """Append one event with the wall-clock time (seconds since the epoch). Raises OSError when the disk is full."""
        self._file.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")
        self._file.flush()

    def started(self) -> None:
        """The first event: who this is."""
        self.emit("started", pid=os.getpid(), host=socket.gethostname())
