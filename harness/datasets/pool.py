"""Tasks spread over the cores of this machine, by processes that never outlive their purpose."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

from harness.errors import Interrupted, RunFailed
from harness.worker.process import end_with_parent

Task = TypeVar("Task")
Returned = TypeVar("Returned")

REFRESH_S = 0.2
AHEAD = 2  # tasks handed out per process: the next one waits where it is needed, the others stay a few numbers here
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

_shared: tuple[Any, Any] | None = None  # in a process of the pool: how far all tasks are, and whether to stop


def results(
    function: Callable[[Task], Returned], tasks: Iterable[Task], processes: int, progress: Callable[[int], None]
) -> Iterator[Returned]:
    """Yield ``function`` of every task, as results come, from ``processes``, or fewer if there are fewer tasks.

    ``progress`` hears the sum of what the tasks gave to ``advance``, several times a second. Raises what ``function``
    raises, and RunFailed when a process was killed. However it ends, by KeyboardInterrupt too, no process is left and every
    task has ended or was stopped by ``advance``.
    """
    context = get_context("spawn")  # forking would copy whatever threads the caller has in whatever state they are
    done, stop = context.Value("q", 0), context.RawValue("b", 0)
    pool = ProcessPoolExecutor(processes, context, _begin, (done, stop))
    waiting: set[Future[Returned]] = set()
    remaining = iter(tasks)
    try:
        while True:
            for task in islice(remaining, AHEAD * processes - len(waiting)):
                # Processes start that never see Ctrl-C, which a terminal sends to all: they end when this process says so.
                before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                try:
                    waiting.add(pool.submit(function, task))
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not waiting:
                return
            ended, waiting = wait(waiting, REFRESH_S, FIRST_COMPLETED)
            yield from (future.result() for future in ended)
            progress(done.value)
    except BrokenProcessPool:
        raise RunFailed("a process was killed from outside, perhaps because there was no memory left") from None
    finally:
        stop.value = 1
        pool.shutdown(cancel_futures=True)


def advance(number: int) -> None:
    """Count, within a task, ``number`` more of whatever is counted as done. Raises Interrupted when the task must end."""
    assert _shared, "only in a task of `results`"
    done, stop = _shared
    if stop.value:
        raise Interrupted("stopped")
    with done.get_lock():
        done.value += number


def _begin(done: object, stop: object) -> None:
    global _shared
    _shared = done, stop
    end_with_parent()
