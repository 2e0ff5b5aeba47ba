"""The notes of a traced process: events of its steps, each with its begin and its end on this process's clock."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Tuple

# Kinds of events. A layer computes; a gradient is there; it goes to a server, or is averaged among workers; it is applied;
# a parameter is asked for, and comes.
FORWARD, BACKWARD, READY, PUSH = "forward", "backward", "ready", "push"
REDUCE, APPLY, ASK, PULL = "reduce", "apply", "ask", "pull"
KINDS = (FORWARD, BACKWARD, READY, PUSH, REDUCE, APPLY, ASK, PULL)
# Step; kind; name of the layer, the tensor or its piece (``dense.kernel:0``, with the first of its elements); process;
# process that it goes to, if any; begin and end in seconds, None where only the other process knows; bytes; the process by
# the time of day of which these seconds are, "" for ``time.perf_counter`` of the process that notes.
Event = Tuple[int, str, str, str, str, Optional[float], Optional[float], int, str]


class Notes:
    """Events of one process, by its name in the plan. ``missing`` says by kind why its framework tells of none.

    ``step`` is that under way. On a device with a clock of its own ``now`` takes a mark of that, of which ``seconds`` makes
    those of ``time.perf_counter``.
    """

    def __init__(self, process: str) -> None:
        self.process, self.step = process, 0
        self.missing: Dict[str, str] = {}
        self.now: Callable[[], Any] = time.perf_counter
        self.seconds: Callable[[Any], float] = float
        self._events: List[Tuple[Any, ...]] = []
        self._later: List[Callable[[], None]] = []

    def note(
        self,
        kind: str,
        name: str,
        begin: Any = None,
        end: Any = None,
        *,
        size: int = 0,
        source: str = "",
        target: str = "",
        step: Optional[int] = None,
        clock: str = "",
    ) -> None:
        """Note an event of this process, or of the process ``source``, in a step that is by default that under way.

        Its times are by the time of day on the host of the process ``clock``, or by ``now``.
        """
        when = self.step if step is None else step
        self._events.append((when, kind, name, source or self.process, target, begin, end, size, clock))

    def later(self, note_more: Callable[[], None]) -> None:
        """Have ``note_more`` called when all steps have ended, which notes what takes a while to find."""
        self._later.append(note_more)

    def at(self, kind: str, name: str, **more: Any) -> None:
        """Note that something happened just now."""
        when = self.now()
        self.note(kind, name, when, when, **more)

    def events(self) -> List[Event]:
        """All events so far, in seconds. Only after the device is synchronised."""
        for note_more in self._later:
            note_more()
        self._later.clear()
        return [
            (*event[:5], *(None if each is None else self.seconds(each) for each in event[5:7]), *event[7:])
            for event in self._events
        ]
