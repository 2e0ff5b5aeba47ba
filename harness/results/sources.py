"""Results from the sources that a person names: our measurements and others' publications.

A *source* is one of these, as on the command line:

- a ``record.json`` or ``kernel.json``, or a folder with records somewhere below it;
- a CSV file of published measurements (``published.py`` says how it looks);
- ``reference`` for all published measurements that come with harness, ``reference:TEXT`` for those whose system, framework,
  backend, model or source contains TEXT;
- the name of a saved baseline.

Of the records in a source some can be selected, as in ``runs/ @ now-7d:`` (``selection.py``).

A folder of run directories may hold ``system.txt``: its text is added to the name of the system that they were measured on,
where that name does not say it all. Runs on links of another rate, for example, are not comparable.

Nothing is kept between commands: without its raw times a record is read in a third of a millisecond.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import InvalidInput, error_in_one_line
from harness.records.kernel import KernelRecord
from harness.records.measurement import Record
from harness.records.record import SYSTEM, AnyRecord, search
from harness.records.training import TrainingRecord
from harness.results import baselines, published
from harness.results.result import Result, of_record, with_libraries
from harness.results.selection import Selected, parted

OnRecord = Callable[[int, int], None]  # is called with how many are done, and of how many
Unreadable = Callable[[str], None]  # is called with "FILE: reason" for a record that cannot be read, or believed
_KINDS: dict[str, type[AnyRecord]] = {kind.file_name: kind for kind in (Record, KernelRecord, TrainingRecord)}
_NO_TEXT = re.compile("[\ud800-\udfff]")  # bytes that the locale has no characters for


def refuse(reason: str) -> None:
    """Refuse a record that cannot be read, unless the caller leaves it out."""
    raise InvalidInput(reason)


def load(
    sources: Sequence[str | Path],
    progress: OnRecord = lambda done, of: None,
    unreadable: Unreadable = refuse,
    selected: Selected | None = None,
    with_accuracies: bool = False,
    doubled: Unreadable = lambda reason: None,
) -> list[Result]:
    """The results in ``sources``, of any kind and status, by start, id and size; only if asked trainings to an accuracy.

    ``progress`` is called with how many records of a source are read. A record that cannot be read is left out if
    ``unreadable`` returns, and others can be read. A caller that passes ``selected`` checks it by itself, and a source that
    is named several times with the same one is read once. ``doubled`` is called with rows of tables that are there twice,
    and count once. Raises InvalidInput for a source that does not exist, or whose selection leaves nothing, or a file that
    is of another kind.
    """
    if not sources:
        raise InvalidInput("no results are named: give files, folders, baselines or reference")
    reasons: list[str] = []
    of_all = selected or Selected()
    named = [(str(source), *parted(source)) for source in sources]
    # A source that does not exist is refused before any is read.
    placed = [None if name.partition(":")[0] == "reference" else place(name) for _, name, _ in named]
    results: list[Result] = []
    for (source, name, selection), path in zip(named, placed, strict=True):
        if path and path.suffix != ".csv":
            if path not in of_all.read:
                of_all.read[path] = _recorded(path, progress, reasons.append)
            results += of_all.of(of_all.read[path], source, selection)
        elif selection:
            raise InvalidInput(f"'{source}': what was published has no start, tag or site to select it by")
        else:
            rows = published.read(path, doubled) if path else published.select(name.partition(":")[2])
            results += published.results(rows)
    if reasons and not (results or of_all.outside):
        more = f"; {len(reasons) - 1:,} more cannot be read either" if len(reasons) > 1 else ""
        raise InvalidInput(f"{reasons[0]}{more}")
    for reason in reasons:
        unreadable(reason)
    if selected is None:
        of_all.check()
    results.sort(key=_order)
    # A run that is in two sources, such as a folder and the baseline saved from it, is one run.
    once = {(result.id, result.size) if result.measured else id(result): result for result in reversed(results)}
    results = [*reversed(once.values())]
    kinds = [trainings(results), kernels(results), *([accuracies(results)] if with_accuracies else [])]
    return sorted((result for kind in kinds for result in with_libraries(kind)), key=_order)


def _order(result: Result) -> tuple[str, str, int]:
    return result.started, result.id, result.size


def place(source: str) -> Path:
    """The file or folder that a source names. Raises InvalidInput if there is none."""
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise InvalidInput(f"{source[:60]}…: {error.strerror}") from None
    saved = path if exists else baselines.find(source)
    if saved is None:
        raise InvalidInput(
            f"{source}: no such file or folder, and no baseline of that name (see `harness baseline list`)"
        )
    return saved


def _recorded(root: Path, progress: OnRecord, unreadable: Unreadable) -> list[Result]:
    """The results of the records at or below ``root``, by file."""
    results: list[Result] = []
    systems: dict[str, str] = {}
    files = sorted(search(root, [*_KINDS]))
    for done, name in enumerate(files, start=1):
        if _NO_TEXT.search(name):
            path = name.encode(errors="backslashreplace").decode()
            unreadable(f"{path}: its path is no text in this locale; set LC_ALL=C.UTF-8, or rename it")
            continue
        file = Path(name)
        try:
            its = of_record(_KINDS.get(file.name, Record).read(file, figures=True), name)
        except InvalidInput as error:
            unreadable(str(error))
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            unreadable(f"{name}: not a valid record: {error_in_one_line(error)}")
        else:
            if (folder := name.rpartition("/")[0].rpartition("/")[0]) not in systems:
                note = (
                    file.parent.parent / SYSTEM
                )  # its text is added to the name of the system of all runs in this folder
                systems[folder] = f", {note.read_text().strip()}" if note.is_file() else ""
            added = systems[folder]
            results += [replace(each, system=each.system + added) for each in its] if added else its
        progress(done, len(files))
    return results


def trainings(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if not (result.kernel or result.epochs or result.target)]


def accuracies(results: Sequence[Result]) -> list[Result]:
    """The trainings to an accuracy."""
    return [result for result in results if result.epochs or result.target]


def with_number(results: Sequence[Result]) -> list[Result]:
    """The trainings that have a number, in img/s or as a published efficiency."""
    return [result for result in trainings(results) if result.completed]


def kernels(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.kernel]


def check_any(results: Sequence[Result], sources: Sequence[str | Path], training: bool = False) -> None:
    """Raise InvalidInput if ``sources`` have no results or, if there has to be a ``training``, none but kernels."""
    where = f"no record.json at or below {', '.join(map(str, sources))}"
    if not results:
        raise InvalidInput(where if training else f"{where}, and no kernel.json")
    if training and not trainings(results):
        raise InvalidInput(f"{where}; it has kernels, which `harness table` and `harness report` show")
