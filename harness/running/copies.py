"""Folders for the machines of a host file, at the paths that they have here: by tar over ssh, and only what is lacking."""

import re
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from tempfile import TemporaryFile

from harness.core.text import last_line, plural
from harness.errors import InvalidInput, RunFailed
from harness.launch import ssh
from harness.running.prepare import Place as Place

HARNESS = Path(__file__).parents[1]
OURS = [HARNESS, *(each.resolve() for each in HARNESS.iterdir() if each.is_symlink())]  # of a checkout
FILES = ["-name", "__pycache__", "-prune", "-o", "-not", "-type", "d", "-printf", r"%s %T@ %p\0"]  # no bytecode
FILE = re.compile(rb"(\d+) (\d+)\.\d+ (/[^\0]*)\0")  # bytes, second of change, path


def copy(folders: Sequence[Path], follow: bool, check: Sequence[str], at: Place, tell: Callable[[str], None]) -> None:
    """Copy folders, whose links are followed or kept, to each machine, and run ``check``; ``tell`` gets a line for each.

    A machine has a file if its size and its second of change are the same, and nothing is removed. Takes GNU tar and find.
    Raises InvalidInput for what cannot be read here, and RunFailed, which names all machines that are not ready.
    """
    find = ["find", "-L" if follow else "-P", *map(str, folders), *FILES]
    here = run(find, stdin=DEVNULL, capture_output=True)
    if here.returncode or not (files := set(FILE.findall(here.stdout))):
        problem = here.stderr.decode(errors="replace") or "there is no file to copy"
        raise InvalidInput(f"{folders[0]}: {last_line(problem)}")
    started: list[Popen[bytes]] = []

    def ask(host: str, argv: Sequence[str], packing: Popen[bytes] | None = None) -> bytes:
        assert at.profile
        command = ["ssh", *ssh.options(at.profile), "--", host, shlex.join(argv)]
        process = Popen(command, stdin=packing.stdout if packing else DEVNULL, stdout=PIPE, stderr=PIPE)
        started.append(process)
        output, problems = process.communicate()
        if process.returncode not in (0, int(argv == find)):  # which ends with 1 where a folder is not there yet
            words = last_line(problems.decode(errors="replace").partition("tar: Exiting")[0])
            if argv == check and process.returncode == 127:
                words = f"lacks {Path(argv[0]).resolve()}: install it there, at the same path as here"
            raise RunFailed(words)
        return output

    def bring(host: str) -> str:
        try:
            lacking = files - set(FILE.findall(ask(host, find)))
            with TemporaryFile() as names:
                names.write(b"\0".join(sorted(path for *_, path in lacking)))
                names.seek(0)
                pack = ["tar", "-chP" if follow else "-cP", "--null", "--files-from=-"]
                started.append(packing := Popen(pack, stdin=names, stdout=PIPE, stderr=DEVNULL))
            with packing:
                ask(host, ["tar", "-xpP", "--no-same-owner"], packing)
            if lost := files - set(FILE.findall(ask(host, find))):
                raise RunFailed(f"lacks {plural(len(lost), 'file')}: {min(lost)[2].decode(errors='replace')}")
            ask(host, check)
        except RunFailed as error:
            return f"{host}: {error}"
        size = sum(int(size) for size, *_ in lacking) / 1e6
        tell(f"{host}: " + (f"copied {plural(len(lacking), 'file')}, {size:.1f} MB" if lacking else "complete"))
        return ""

    with ThreadPoolExecutor(8) as pool:  # machines at once
        try:
            failed = [*filter(None, pool.map(bring, [machine.name for machine in at.machines]))]
        finally:
            for process in started:  # where this is interrupted
                process.kill()
    if failed:
        raise RunFailed("\n    ".join([f"{plural(len(failed), 'machine')} not ready:", *failed]))
