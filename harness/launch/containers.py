"""Containers and their like: how a command runs in an image. Each platform is a file of ``jobs/containers``.

A platform has one of two forms: ``srun``, options of a plugin by which every task is in the image, or ``command``, words
before a command. Names in braces are replaced in them: ``{image}``, ``{file}`` (where the text of ``file`` is) and
``{mounts}``, with commas between them. A word that is ``{mounts}``, ``{gpus}``, ``{options}`` or ``{environment}`` alone
stands for the words of all of these.
"""

import re
import shutil
import tomllib
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.parts import part
from harness.core.spec import Frozen
from harness.core.text import did_you_mean
from harness.errors import InvalidInput
from harness.launch import slurm
from harness.sites.file import Container

FILE = "container.toml"  # of a run directory


class Platform(Frozen):
    """A platform. ``mount`` are the words for a folder's {source} and {target}, ``gpus`` are the words that give GPUs,
    ``environment`` passes on the variable {name}, and the command ``digest`` prints an image's. A ``local`` one is not
    for batch systems, and one that is not ``offered`` is in no profile that harness writes."""

    type: str
    srun: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    environment: str = ""
    file: str = ""
    digest: tuple[str, ...] = ()
    local: bool = False
    offered: bool = True


@cache
def platforms() -> dict[str, Platform]:
    """All of them, by their types in small letters."""
    files = sorted((part("jobs") / "containers").glob("*.toml"))
    every = [Platform.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))) for file in files]
    return {each.type.casefold(): each for each in every}


def platform(name: str) -> Platform:
    """Raises InvalidInput for one that is not known."""
    try:
        return platforms()[name.casefold()]
    except KeyError:
        names = [each.type for each in platforms().values()]
        close = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise InvalidInput(f"unknown container platform '{name}'; {close}") from None


def lacking(container_platform: str) -> str:
    """The reason why images cannot be opened from here, "" if they can: by PATH, and by srun's help.

    Raises InvalidInput for a platform that is not known, SlurmSilent.
    """
    own = platform(container_platform)
    if own.command:
        return "" if shutil.which(own.command[0]) else f"{own.type}: no `{own.command[0]}` on PATH"
    option = own.srun[0].partition("=")[0]
    done = slurm.ask("srun", "--help")
    known = re.search(rf"{option}\b", done.stdout + done.stderr)
    return "" if known else f"{own.type}: srun has no {option}"


def found() -> list[str]:
    """The platforms that a batch system's jobs can use, as far as is seen from here. Raises SlurmSilent."""
    return [each.type for each in platforms().values() if each.offered and not each.local and not lacking(each.type)]


def parse(text: str, usual: str | None) -> Container:
    """``TYPE:IMAGE``, or ``IMAGE`` for the ``usual`` platform of a site. Raises InvalidInput."""
    name, colon, image = text.partition(":")
    if colon and not image.startswith("//") and name.casefold() in platforms():  # docker://… is an address
        return Container(platform=platform(name).type, image=image)
    if usual is None:
        known = ", ".join(each.type for each in platforms().values())
        raise InvalidInput(f"--container {text}: which platform? give TYPE:IMAGE, with one of {known}")
    return Container(platform=platform(usual).type, image=text)


def within(
    container: Container, folders: Sequence[str], run_dir: Path, gpus: bool, variables: Collection[str]
) -> dict[str, Any]:
    """A container as a plan has it: srun's options, the words before a command, and the text of its file.

    ``folders`` are seen in the image at the same paths. ``variables`` are passed on where a platform has to be told.
    """
    assert container.platform
    own = platform(container.platform)
    pairs = [mount.partition(":")[::2] for mount in (*folders, *container.mounts)]
    mounts = [
        word.format(source=source, target=target or source)
        for source, target in dict(pairs).items()
        for word in own.mount
    ]
    lists = {
        "{mounts}": mounts,
        "{gpus}": own.gpus if gpus else (),
        "{options}": container.options,
        "{environment}": [own.environment.format(name=name) for name in sorted(variables)],
    }
    texts = {"image": container.image, "file": str(run_dir / FILE), "mounts": ",".join(mounts)}

    def filled(words: Sequence[str]) -> Iterator[str]:
        for word in words:
            if word in lists:
                yield from lists[word]
            else:
                yield re.sub(r"\{(image|file|mounts)\}", lambda name: texts[name[1]], word)

    return {
        "platform": own.type,
        "image": container.image,
        "srun": list(filled(own.srun)),
        "command": list(filled(own.command)),
        "digest": list(filled(own.digest)),
        "file": next(filled([own.file])),
    }
