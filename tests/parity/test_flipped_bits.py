"""Flipped bits in gradients of a real training: which a run or its fingerprint notices, and which are missed.

The totals in docs/regressions.md are those of the table that `-s` prints of 1,000; of 100 each bit flips as often. A
run fails if ranks end with other parameters, or with a number that is not finite. Of one that counts, three repeats are
looked at, of which one has the flip: its losses may show it however repeats of that software differ, or its bits where
they do not.
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.core.fingerprint import allowed, odd_repeats, taken
from harness.records.record import AnyRank, judge_ranks
from tests.conftest import ROOT, Harness, laid_out

MODEL, STEPS, EARLY = "hep_cnn", 10, 5
RUN = ["--backend", "pytorch", "--transport", "gloo", "--nodes", "2", "--model", MODEL, "--batch-size", "2"]
RUN += ["--image-size", "16", "--threads", "1", "--warmup", "5", "--steps", str(STEPS - 5)]
EXPONENT, MANTISSA = range(30, 22, -1), range(22, 20, -1)  # of float32, the upper bits first
CONTROLS = 20
OUTCOMES = ("no number", "other losses", "other bits", "missed")

Evidence = dict[str, Any]


def flips(count: int) -> list[dict[str, Any]]:
    """Every bit as often as any other, before the exchange and after it; the rest by chance. Controls flip none."""
    chance = random.Random(1)
    tensors, bits = models.specification(MODEL).tensors, [*EXPONENT, *MANTISSA]
    drawn: list[dict[str, Any]] = []
    for number in range(count):
        tensor = chance.choice(tensors)
        place = {"tensor": tensor.name, "element": chance.randrange(tensor.elements), "rank": chance.randrange(2)}
        when = {"step": chance.randrange(EARLY), "exchanged": number // len(bits) % 2 == 1}
        drawn.append({"bit": bits[number % len(bits)], **place, **when})
    return [{"bit": None, "step": number % EARLY} for number in range(CONTROLS)] + drawn


def fingerprint_of(*repeats: list[Evidence]) -> Any:
    return taken([([rank["losses"] for rank in ranks], ranks[0]["digest"]) for ranks in repeats])


def outcome(usual: list[Evidence], ranks: list[Evidence]) -> str:
    """What becomes of a training whose ``ranks`` leave this evidence, where ``usual`` is that of others like it."""
    reported = [AnyRank(rank=number, host="here", evidence=evidence) for number, evidence in enumerate(ranks)]
    if not all(check.passed for check in judge_ranks(reported, [STEPS, STEPS], 2, STEPS, STEPS)):
        return "no number"
    for _, apart in odd_repeats(fingerprint_of(usual, usual, ranks), allowed("fp32", "cpu")):
        return "other losses" if apart.beyond else "other bits"
    return "missed"


@pytest.fixture
def trained(harness: Harness, environment: Callable[..., Path], tmp_path: Path, count: int) -> list[list[Evidence]]:
    """The evidence of both ranks after each of ``flips(count)``."""
    python = environment("pytorch")
    shown = laid_out(harness, tmp_path, *RUN)
    (tmp_path / "flips.json").write_text(json.dumps(flips(count)))
    script, ranks = Path(__file__).with_name("flipped_bits.py"), range(2)
    started = [
        subprocess.Popen(
            [python, script, tmp_path, str(rank), tmp_path / "flips.json", tmp_path / f"{rank}.json"],
            env={**os.environ, **shown["plan"]["processes"][rank]["env"], "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    try:
        said = [process.communicate(timeout=600)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    evidence = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in ranks]
    return [list(both) for both in zip(*evidence, strict=True)]


def table(counts: Counter[tuple[bool, int, str]]) -> str:
    """How many flips of each bit were noticed, and how."""
    lines = []
    for bit in (*EXPONENT, *MANTISSA):
        name = f"exponent {bit - 23}" if bit in EXPONENT else f"mantissa {bit}"
        cells = [counts[False, bit, outcome] for outcome in OUTCOMES]
        cells += [counts[True, bit, outcome] for outcome in ("no number", "missed")]
        lines.append(f"| {bit} ({name}) | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_flipped_bits_are_noticed_or_counted_as_missed(
    trained: list[list[Evidence]], harness: Harness, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    usual, drawn = trained[0], flips(count)
    assert [outcome(usual, ranks) for ranks in trained[:CONTROLS]] == ["missed"] * CONTROLS
    real = harness("run", *RUN, "--repeats", "2", "--json").succeeded().json["derived"]["fingerprint"]["outcomes"]
    (same,) = fingerprint_of(usual).outcomes
    assert [(one["bits"], one["repeats"]) for one in real] == [
        (same.bits, [1, 2])
    ]  # what is flipped here is a run's own

    counts = Counter(
        (flip["exchanged"], flip["bit"], outcome(usual, ranks))
        for flip, ranks in zip(drawn[CONTROLS:], trained[CONTROLS:], strict=True)
    )
    with capsys.disabled():
        print(f"\n{table(counts)}")
    assert counts.total() == count
    missed = sum(count for (_, _, became), count in counts.items() if became == "missed")
    assert missed < count / 2
    # The top bit of the exponent makes a huge number of any gradient that training has.
    assert not [place for place in counts if place[1] == 30 and place[2] == "missed"]
    # What only one rank has after the exchange sets its parameters apart: there is no number for a fingerprint to excuse.
    assert {became for exchanged, _, became in counts if exchanged} <= {"no number", "missed"}
