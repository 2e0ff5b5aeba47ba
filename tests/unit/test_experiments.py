"""What the script beside a study reads off its results, on step times that are made by a law which is known."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness.core import backend
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.results import rows as result_rows
from tests.conftest import ROOT
from tests.scripts import script
from tests.unit import made_rows

ps_bottleneck = script("studies/ps-bottleneck/analyse.py")
KEPT = ROOT / "results" / "experiments" / "ps-bottleneck"
RATE = 20e6  # bytes/s
COMPUTE_S = 0.01
Time = Callable[[RunSpec], float]


def spec(contender: str, nodes: int, **options: Any) -> RunSpec:
    """A complete spec of the experiment's model."""
    name, _, transport = contender.partition(":")
    own = backend.backend(name).options(**options)
    return RunSpec(
        backend=name,
        framework=backend.backend(name).frameworks[0],
        transport=transport or "grpc",
        model="pointwise",
        nodes=nodes,
        batch_size=1,
        image_size=32,
        device="cpu",
        options=own.model_dump(),
    )


def servers(nodes: int, ps: int, placement: str = "greedy", contender: str = "parameter_server") -> RunSpec:
    return spec(contender, nodes, ps=ps, placement=placement, slice_size="256KiB")


SPECS = [
    *[servers(nodes, 1) for nodes in (1, 2, 4)],
    *[servers(8, ps) for ps in range(1, 9)],
    *[servers(8, ps, "round_robin") for ps in range(2, 9)],
    *[servers(nodes, nodes) for nodes in (2, 4)],
    *[servers(nodes, nodes, "partitioned") for nodes in (2, 4, 8)],
    *[spec("pytorch:gloo", nodes) for nodes in (1, 2, 4, 8)],
]


def bounded(one: RunSpec) -> float:
    """The law, with both directions in turn."""
    return ps_bottleneck.by_law(one, COMPUTE_S, RATE)


def flat(one: RunSpec) -> float:
    """Nothing depends on anything."""
    return 0.5


def analysis(time: Time, specs: Iterable[RunSpec] = SPECS, spread: float = 0.001) -> Any:
    """Two repeats of each spec, ``spread`` about the time that it has by ``time``."""
    return ps_bottleneck.analysed(frame(time, specs, spread))


def frame(time: Time, specs: Iterable[RunSpec] = SPECS, spread: float = 0.001) -> Any:
    rows = [
        made_rows.run(
            one.workers,
            [one.workers / (time(one) * factor) for factor in (1 - spread, 1 + spread)],
            backend=one.backend,
            batch_size=1,
            spec=json.dumps(one.model_dump()),
            ended="2026-01-01T01:00:00.000+00:00",
        )
        for one in specs
    ]
    return result_rows.frame(rows)


def finding(found: Any, name: str) -> Any:
    return next(one for one in found.findings if one.name == name)


def answers(found: Any) -> dict[str, str]:
    return {one.name: one.answer for one in found.findings}


def test_the_law_is_recognised_with_its_throughput() -> None:
    found = analysis(bounded)
    assert set(answers(found).values()) == {"yes"}
    assert found.rates == pytest.approx({"grpc": RATE, "gloo": RATE}, rel=1e-3)
    assert found.points["error"].notna().any() and found.points["error"].abs().max() < 0.01


def test_what_depends_on_nothing_is_not_called_bounded() -> None:
    found = answers(analysis(flat))
    assert found["partitioning_helps"] == "no"
    assert found["toolkits_are_flat"] == "yes"
    assert found["servers_stop_helping"] == "yes"  # true, if for another reason: the text has both speed-ups


def test_servers_that_go_on_helping_are_seen() -> None:
    found = finding(analysis(lambda one: 8.0 / one.options.get("ps", 1)), "servers_stop_helping")
    assert found.answer == "no"
    assert found.figures["from"] == 3
    assert found.figures["speedup_after"] == pytest.approx(8 / 3, rel=1e-3)


def test_parity_is_told_pair_by_pair() -> None:
    found = finding(analysis(bounded), "parity_matters")
    assert found.figures["2_over_1"] == pytest.approx(1, rel=0.01)
    assert found.figures["4_over_3"] == pytest.approx(6_815_744 / 5_775_268, rel=0.01)
    assert "4 servers take 1.18" in found.because


def test_without_parity_more_servers_always_help() -> None:
    found = finding(analysis(lambda one: 8.0 / one.options.get("ps", 1)), "parity_matters")
    assert found.answer == "no"


def test_directions_at_once_are_told_from_directions_in_turn() -> None:
    """A step that takes half as long as the law says, while toolkits show the same links."""
    once = analysis(lambda one: bounded(one) / (2 if one.backend == "parameter_server" and one.nodes > 1 else 1))
    assert finding(once, "directions_take_turns").answer == "no"
    assert finding(analysis(bounded), "directions_take_turns").figures["parameter_server, 4 nodes, 1 ps greedy"] == (
        pytest.approx(2, rel=0.01)
    )


def test_toolkits_that_grow_with_the_nodes_are_not_flat() -> None:
    assert finding(analysis(lambda one: 0.1 * one.nodes), "toolkits_are_flat").answer == "no"


def test_noise_gives_no_answer() -> None:
    found = answers(analysis(bounded, spread=0.5))
    assert found["partitioning_helps"] == "cannot say"


def test_what_was_not_measured_is_said() -> None:
    found = analysis(bounded, [servers(1, 1), servers(8, 1)])
    assert set(answers(found).values()) == {"cannot say"}
    assert all(one.because.startswith("Not measured: ") for one in found.findings)


def test_a_step_without_a_network_is_required() -> None:
    with pytest.raises(InvalidInput, match="no results on one node"):
        analysis(bounded, [servers(8, 1)])


def fullest(one: RunSpec) -> int:
    """Bytes on the server that holds most."""
    return int(ps_bottleneck.described(one)["fullest_server_bytes"])


def test_the_fullest_server_is_that_of_the_real_placement() -> None:
    assert [fullest(servers(8, ps)) for ps in (1, 3, 8)] == [12_169_124, 4_288_512, 4_194_304]
    assert fullest(servers(8, 8, "partitioned")) == 1_572_864
    assert fullest(spec("pytorch:gloo", 8)) == 0


def test_one_repeat_has_no_interval() -> None:
    alone = pandas.DataFrame({"repeats": [1], "squares": [0.0], "measured_s": [1.0]})
    alone["half_interval"] = ps_bottleneck.half_intervals(alone)
    (point,) = alone.itertuples()
    times = ps_bottleneck.Times.of(point, point)
    assert math.isnan(point.half_interval) and str(times) == "1.00 times"
    assert (times.exceeds(0.9), times.exceeds(1.1), times.at_most(1.1)) == ("yes", "no", "yes")


def test_the_spread_is_that_of_all_points_together() -> None:
    """Student's t for 3 degrees of freedom is 3.18; each point's logarithms differ by 0.02 or 0.04 from each other."""
    by = {2: 0.02, 4: 0.04, 8: 0.04}
    rows = frame(flat, [servers(nodes, 1) for nodes in by])
    rows["values"] = [[nodes * math.exp(sign * by[nodes] / 2) for sign in (-1, 1)] for nodes in rows["workers"]]
    points = ps_bottleneck.measured(rows)
    points["half_interval"] = ps_bottleneck.half_intervals(points)
    deviation = math.sqrt(sum(one**2 / 2 for one in by.values()) / 3)
    assert list(points["half_interval"]) == pytest.approx([3.182 * deviation / math.sqrt(2)] * 3, rel=1e-3)
    first, second, _ = points.itertuples()
    assert ps_bottleneck.Times.of(first, second).half_interval == pytest.approx(3.182 * deviation, rel=1e-3)


def test_the_fit_finds_the_throughput_from_any_side() -> None:
    specs = (servers(2, 1), servers(4, 2))
    for rate in (1e6, 3e7, 1e10):
        steps_s = [ps_bottleneck.by_law(one, 1e-4, rate) for one in specs]
        known = pandas.DataFrame({"spec": specs, "measured_s": steps_s, "single_s": 1e-4})
        assert ps_bottleneck.fitted_rate(known) == pytest.approx(rate, rel=1e-3)


def test_the_page_holds_every_point_and_no_path_of_this_machine(tmp_path: Path) -> None:
    rows = frame(bounded)
    rows["source"] = [str(tmp_path / "x" / f"{number}" / "record.json") for number in range(len(rows))]
    found = ps_bottleneck.analysed(rows, frame(flat, [servers(8, 8)]))
    ps_bottleneck.write(found, rows, tmp_path / "x", "Links of 160 Mbit/s.")
    written = list((tmp_path / "x").iterdir())
    assert {path.name for path in written} == {
        *("index.md", "points.csv", "analysis.json", "servers.png", "nodes.png", "predicted.png")
    }
    text = (tmp_path / "x" / "index.md").read_text()
    assert "Links of 160 Mbit/s." in text and all(label in text for label in found.points["label"])
    assert all(str(tmp_path) not in path.read_text() for path in written if path.suffix != ".png")
    listed = json.loads((tmp_path / "x" / "analysis.json").read_text())["points"]
    assert [one["without_limit_s"] for one in listed if one["without_limit_s"]] == [pytest.approx(0.5)]
    assert all(math.isfinite(one["measured_s"]) for one in listed)


def test_the_committed_page_is_what_would_be_written_today(tmp_path: Path) -> None:
    """But for the last digits, which differ from processor to processor."""
    (tmp_path / "page").mkdir()
    for kind in ("limited", "unlimited"):
        (tmp_path / "page" / kind).symlink_to(KEPT / kind)
    note = re.search(r"The links are those of .*$", (KEPT / "index.md").read_text(), re.M)
    assert note
    ps_bottleneck.main([str(tmp_path / "page"), "-o", str(tmp_path / "page"), "--note", note[0]])
    same = script("studies/published/answers.py").same
    for name in ("index.md", "points.csv", "analysis.json"):
        assert same((tmp_path / "page" / name).read_text(), (KEPT / name).read_text()), name


def test_a_folder_with_both_kinds_of_links_is_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs on links with a limit are the results, those without it the control."""
    ps_bottleneck.main([str(KEPT)])
    whole = capsys.readouterr().out
    ps_bottleneck.main([str(KEPT / "limited"), "--control", str(KEPT / "unlimited")])
    assert capsys.readouterr().out == whole
    assert "0.52 s of its 1.80 s remain without a limit" in whole


@pytest.mark.parametrize(
    ("arguments", "complaint"), [(["nowhere"], "nowhere: no such file or folder"), (["."], "no completed runs")]
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    argv = [sys.executable, str(ps_bottleneck.__file__), *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and complaint in done.stderr


def test_a_worker_gets_what_its_own_server_holds_without_the_network() -> None:
    """With a server on every node a worker exchanges the rest of the model only: 2 nodes with 2 servers move half."""
    halves = ps_bottleneck.by_law(servers(2, 2, "partitioned"), 1e-6, RATE)
    assert halves == pytest.approx(2 * fullest(servers(2, 2, "partitioned")) / RATE, rel=1e-3)
    whole = ps_bottleneck.by_law(servers(2, 1), 1e-6, RATE)
    assert whole == pytest.approx(2 * fullest(servers(2, 1)) / RATE, rel=1e-3)
