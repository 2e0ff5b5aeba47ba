"""Containers and their like, to run a command in an image. Each platform is a file of ``jobs/containers``.

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
from harness.errors import InvalidInput
from harness.launch import slurm
from harness.sites.file import Container, instead

FILE = "container.toml"  # of a run directory


class Platform(Frozen):
    """A container platform."""

    type: str
    srun: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()  # the words for a folder's {source} and {target}
    gpus: tuple[str, ...] = ()  # the words that give GPUs
    environment: str = ""  # the word that passes on the variable {name}
    file: str = ""
    digest: tuple[str, ...] = ()  # a command that prints an image's digest
    local: bool = False  # not for batch systems
    offered: bool = True  # in profiles that harness writes


@cache
def platforms() -> dict[str, Platform]:
    """All platforms, by their types in small letters."""
    files = sorted((part("jobs") / "containers").glob("*.toml"))
    models = [Platform.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))) for file in files]
    return {model.type.casefold(): model for model in models}


def platform(name: str) -> Platform:
    """Raises InvalidInput for one that is not known."""
    if known := platforms().get(name.casefold()):
        return known
    names = [platform.type for platform in platforms().values()]
    raise InvalidInput(f"unknown container platform '{name}'; {instead(name, names)}")


def lacking(container_platform: str) -> str:
    """The reason why images cannot be opened from here, by PATH or srun's help, "" if they can.

    Raises InvalidInput for a platform that is not known, SlurmSilent.
    """
    needed = platform(container_platform)
    if needed.command:
        return "" if shutil.which(needed.command[0]) else f"{needed.type}: no `{needed.command[0]}` on PATH"
    option = needed.srun[0].partition("=")[0]
    done = slurm.ask("srun", "--help")
    known = re.search(rf"{option}\b", done.stdout + done.stderr)
    return "" if known else f"{needed.type}: srun has no {option}"


def available() -> list[str]:
    """The platforms that a batch system's jobs can use, as far as is seen from here. Raises SlurmSilent."""
    offered = [platform.type for platform in platforms().values() if platform.offered and not platform.local]
    return [name for name in offered if not lacking(name)]


def parse(text: str, usual: str | None) -> Container:
    """Read ``TYPE:IMAGE``, or ``IMAGE`` for the ``usual`` platform of a site. Raises InvalidInput."""
    name, colon, image = text.partition(":")
    if colon and not image.startswith("//") and name.casefold() in platforms():  # docker://… is an address
        return Container(platform=platform(name).type, image=image)
    if usual is None:
        known = ", ".join(platform.type for platform in platforms().values())
        raise InvalidInput(f"--container {text}: which platform? give TYPE:IMAGE, with one of {known}")
    return Container(platform=platform(usual).type, image=text)


def within(
    container: Container, folders: Sequence[str], run_dir: Path, gpus: bool, variables: Collection[str]
) -> dict[str, Any]:
    """A container as a plan has it: srun's options, the words before a command, and the text of its file.

    ``folders`` are seen in the image at the same paths. ``variables`` are passed on where a platform has to be told.
    """
    assert container.platform
    used = platform(container.platform)
    targets = dict(mount.partition(":")[::2] for mount in (*folders, *container.mounts))
    mounts = [word.format(source=source, target=targets[source] or source) for source in targets for word in used.mount]
    lists = {
        "{mounts}": mounts,
        "{gpus}": used.gpus if gpus else (),
        "{options}": container.options,
        "{environment}": [used.environment.format(name=name) for name in sorted(variables)],
    }
    texts = {"image": container.image, "file": str(run_dir / FILE), "mounts": ",".join(mounts)}

    def filled(words: Sequence[str]) -> Iterator[str]:
        for word in words:
            if word in lists:
                yield from lists[word]
            else:
                yield re.sub(r"\{(image|file|mounts)\}", lambda name: texts[name[1]], word)

    words = {name: list(filled(getattr(used, name))) for name in ("srun", "command", "digest")}
    return {"platform": used.type, "image": container.image, **words, "file": next(filled([used.file]))}
