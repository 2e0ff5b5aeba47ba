"""The end with the parent. Standard library only; Python 3.9."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Thread


def end_with_parent() -> None:
    """End this process of ``multiprocessing`` when the one that asked for it dies, however it dies.

    Of themselves such processes wait on: for tasks in a pipe whose other end they hold open too, or for the fork server,
    which lives as long as its children.
    """
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
