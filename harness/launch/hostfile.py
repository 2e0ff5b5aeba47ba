"""The host file: the machines that ssh reaches, one per line. Pure but for reading the file.

    # NAME                    ADDRESS (default: NAME without user@)
    ubuntu@ec2-54-1-2-3       10.0.0.11

NAME is what ssh gets, ADDRESS where the machine's processes listen and how those of other machines reach them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.core.plan import Node
from harness.core.text import plural
from harness.errors import InvalidInput

WORD = re.compile(r"[A-Za-z0-9._:@][A-Za-z0-9._:@-]*")
SHAPE = "must be NAME or NAME ADDRESS, such as `ubuntu@203.0.113.7 10.0.0.11`"


@dataclass(frozen=True)
class HostFile:
    """The machines of a host file, in its order, without GPUs."""

    path: Path
    nodes: tuple[Node, ...]

    def first(self, count: int) -> tuple[Node, ...]:
        """The first ``count`` machines. Raises InvalidInput when there are fewer."""
        if len(self.nodes) < count:
            machines = plural(len(self.nodes), "machine")
            raise InvalidInput(f"--hosts {self.path} lists {machines}, the run needs {count}")
        return self.nodes[:count]


def read(path: Path) -> HostFile:
    """Read a host file. Raises InvalidInput naming the first wrong line."""
    try:
        return parse(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InvalidInput(f"--hosts {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"--hosts {path}: not a text file") from None


def parse(text: str, path: Path) -> HostFile:
    """The host file with this text; ``path`` is for messages. Raises InvalidInput as ``read`` does."""
    nodes: list[Node] = []
    names: dict[str, int] = {}  # the lines where they are
    addresses: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}:{number}"
        node = _node(words, where)
        for what, value, seen in (("machine", node.name, names), ("address", node.address, addresses)):
            if value in seen:
                raise InvalidInput(f"{where}: {what} {value} is on line {seen[value]} already; name each machine once")
            seen[value] = number
        nodes.append(node)
    if not nodes:
        raise InvalidInput(f"{path}: lists no machines; each line {SHAPE}")
    return HostFile(path, tuple(nodes))


def _node(words: list[str], where: str) -> Node:
    if len(words) > 2:
        raise InvalidInput(f"{where}: {len(words)} words; a line {SHAPE}")
    for word in words:
        if word.startswith("-"):
            raise InvalidInput(f"{where}: '{word}' begins with -, ssh would take it for an option; a line {SHAPE}")
        if not WORD.fullmatch(word):
            raise InvalidInput(f"{where}: {word!r} may hold only letters, digits and ._:@-; a line {SHAPE}")
    user, _, host = words[0].rpartition("@")
    address = words[1] if len(words) == 2 else host
    if not host or words[0].startswith("@") or host.startswith("-"):
        raise InvalidInput(f"{where}: '{words[0]}' names no machine; a line {SHAPE}")
    if "@" in address or "@" in user:
        raise InvalidInput(f"{where}: '{' '.join(words)}' has an @ too many; a line {SHAPE}")
    return Node(words[0], address)
