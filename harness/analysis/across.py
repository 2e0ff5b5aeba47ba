"""Results of two systems, or published ones beside measured ones, made comparable: equal in all that both sides know.

Their specs are never equal texts: another machine has other cores, a publication does not say how many steps it took. What
is matched is what defines the training and its size (``MATCHED``), as far as it is known of every run of both sides. All
else may differ, and is said.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.analysis.differences import LENGTH
from harness.core.text import plural
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

# Columns of results that have to be equal, if they are known.
MATCHED = (
    *("backend", "framework", "transport", "model", "nodes", "devices_per_node", "ps", "batch_size"),
    *("image_size", "data", "precision", "training", "options"),
)
# What else may explain a difference, beside the environment of records.
_SAID = ("processor", "device", "software", "mpi", "threads")
_UNKNOWN = ("", 0, "{}")
_ALWAYS = ("backend", "nodes", "devices_per_node", "training")  # a published table knows them, too


def matched(old: pandas.DataFrame, new: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame, list[str]]:
    """Both sides with ``spec`` reduced to what both know, and with notes of what that leaves open.

    Where several configurations of a side are one measurement then, such as several numbers of parameter servers of which
    the other side does not say how many it had, the fastest counts: intervals do not allow for that choice, the note says
    it. Raises InvalidInput for a side with several systems, or without throughputs.
    """
    sides = {"OLD": _with_a_number(old), "NEW": _with_a_number(new)}
    for name, side in sides.items():
        if side.empty:
            raise InvalidInput(f"{name} holds no number in img/s: efficiencies and failed runs cannot be compared")
        if len(systems := sorted(set(side["system"]))) > 1:
            raise InvalidInput(
                f"{name} holds results of {len(systems)} systems ({', '.join(systems)}); give those of one"
            )
    names = [name for name in MATCHED if name in _ALWAYS or all(_known(side, name) for side in sides.values())]
    open_ = [
        name for name in MATCHED if name not in names and any(set(side[name]) - {*_UNKNOWN} for side in sides.values())
    ]
    notes, reduced = [], []
    if open_:
        unknown = ", ".join(name.replace("_", " ") for name in open_)
        notes.append(f"not known on both sides, so not matched: {unknown}")
    for name, side in sides.items():
        side["spec"] = [_spec(row, names) for row in side.to_dict("records")]
        side["environment"] = [_environment(row, open_) for row in side.to_dict("records")]
        fastest, more = _fastest(side)
        reduced.append(fastest)
        if more:
            notes.append(
                f"{name} has {plural(more, 'more configuration')} of these measurements; the fastest counts, "
                "which flatters it"
            )
    return reduced[0], reduced[1], notes


def _with_a_number(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The runs with a throughput, each with an id and its repeats; a published mean counts as one."""
    import pandas

    known = frame[(frame["status"] == "completed") & frame["img_per_s"].notna()].reset_index(drop=True)
    ids = [
        one or f"{source} {number}"
        for number, (one, source) in enumerate(zip(known["id"], known["source"], strict=True))
    ]
    values = [list(each) or [mean] for each, mean in zip(known["values"], known["img_per_s"], strict=True)]
    return known.assign(id=ids, values=pandas.Series(values, dtype="object"))


def _known(side: pandas.DataFrame, name: str) -> bool:
    if name == "ps":  # toolkits have none
        return bool((side.loc[side["family"] == "parameter_servers", "ps"] > 0).all())
    if name == "options":  # which backends without options have not
        return bool((side["origin"] == "measured").all())
    return not side[name].isin(_UNKNOWN).any()


def _spec(row: dict[Any, Any], names: list[str]) -> str:
    spec: dict[str, Any] = {name: row[name] if name in names else "" for name in MATCHED if name != "ps"}
    options = json.loads(row["options"]) if "options" in names else {}
    ps = {"ps": row["ps"]} if row["ps"] and "ps" in names else {}
    return json.dumps(spec | {"options": options | ps})


def _environment(row: dict[Any, Any], open_: list[str]) -> str:
    names = {name: name.replace("_", " ") for name in (*_SAID, *open_)} | LENGTH
    known = {name: row[column] for column, name in names.items() if row[column] not in _UNKNOWN}
    facts = {name: str(value) for name, value in known.items() if value == value}  # NaN is not known either
    if row["processor"] == row["system"]:  # as of published results, which name no other
        del facts["processor"]
    return json.dumps(json.loads(row["environment"] or "{}") | facts)


def _fastest(side: pandas.DataFrame) -> tuple[pandas.DataFrame, int]:
    """Of each spec the runs of its fastest configuration, and how many other configurations there are."""
    ways = side.groupby(["spec", *(name for name in (*MATCHED, *_SAID) if name != "processor")], sort=False)
    mean = ways["img_per_s"].transform("mean")
    best = mean.groupby(side["spec"]).transform("max")
    fastest = side[mean >= best]
    return fastest, ways.ngroups - fastest["spec"].nunique()
