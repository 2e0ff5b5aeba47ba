"""The host file: the machines that ssh reaches, one per line. Pure but for reading the file.

    # NAME                    ADDRESS (default: NAME without user@)
    ubuntu@ec2-54-1-2-3       10.0.0.11

NAME is what ssh gets, ADDRESS where the machine's processes listen and how those of other machines reach them.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.core.plan import Node
from harness.errors import InvalidInput

HOST = r"[A-Za-z0-9._:][A-Za-z0-9._:-]*"
LINE = re.compile(rf"(?P<name>({HOST}@)?(?P<host>{HOST}))(\s+(?P<address>{HOST}))?")
SHAPE = "must be NAME or NAME ADDRESS, such as `ubuntu@203.0.113.7 10.0.0.11`"


def read(path: Path) -> tuple[Node, ...]:
    """The machines of a host file, in its order, without GPUs. Raises InvalidInput naming the first wrong line."""
    try:
        return parse(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InvalidInput(f"--hosts {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"--hosts {path}: not a text file") from None


def parse(text: str, path: Path) -> tuple[Node, ...]:
    """The machines of a host file with this text; ``path`` is for messages. Raises InvalidInput as ``read`` does."""
    nodes: list[Node] = []
    lines: dict[tuple[str, str], int] = {}  # where each name and each address is
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        match = LINE.fullmatch(words)
        if not match:
            raise InvalidInput(f"{path}:{number}: '{words}' names no machine; a line {SHAPE}")
        node = Node(match["name"], match["address"] or match["host"])
        for entry in (("machine", node.name), ("address", node.address)):
            if lines.setdefault(entry, number) != number:
                again = f"{' '.join(entry)} is on line {lines[entry]} already; name each machine once"
                raise InvalidInput(f"{path}:{number}: {again}")
        nodes.append(node)
    if not nodes:
        raise InvalidInput(f"{path}: lists no machines; each line {SHAPE}")
    return tuple(nodes)
