"""One events file per process: JSON lines that the controller reads while the run goes on. Never written in the window."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Events:
    """Appends events to a file; each line is complete on disk before the process goes on."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def emit(self, event: str, **fields: Any) -> None:
        """Append one event with the wall-clock time (seconds since the epoch). Raises OSError when the disk is full."""
        line = (json.dumps({"event": event, "time": time.time(), **fields}) + "\n").encode()
        begin = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(begin)  # half a line tells nothing, and takes the room of the error's own event
            raise
