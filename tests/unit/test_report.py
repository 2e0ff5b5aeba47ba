"""The report without a browser: what figures hold, what the page embeds, what files are written, what is refused."""

import itertools
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from matplotlib import pyplot
from matplotlib.patches import Rectangle

from harness import results
from harness.core.backend import EVERY, contenders
from harness.core.emulation import Kept
from harness.prediction import observations
from harness.records.measurement import Record
from harness.report.page import assemble, document, figures, lines, modelled, plotly, run_figures, static
from harness.report.page.document import Section
from harness.report.page.figures import DARK, LIGHT, Axis, Facets, Figure, Series, Spot, Style
from harness.report.text import runs as of_runs
from harness.results import Result
from tests import made
from tests.browser import sample
from tests.conftest import Harness
from tests.wording import Case, cases

matplotlib.use("Agg")
ANYTHING = Facets(*([("x",)] * len(Facets._fields)))


def loaded(folder: Path, *records_: Record) -> list[Result]:
    return results.load([made.save(folder / "records", records_)])


def section(found: list[Section], name: str) -> Section:
    return next(one for one in found if one.name == name)


# --- figures --------------------------------------------------------------------------------------


def test_ticks_are_the_sizes_that_were_measured_powers_of_two_first() -> None:
    ticks = figures.measured_ticks([1, 2, 4, 8, 12, 32, 40, 64, 116, 128])
    assert [label for _, label in ticks] == ["1", "2", "4", "8", "12", "32", "64", "128"]


def test_ticks_of_throughput_stand_at_1_2_and_5_unless_decades_are_many() -> None:
    few, many = figures.decade_ticks([30.0, math.nan, 9000.0]), figures.decade_ticks([1.0, 100_000.0])
    assert {"50", "200", "5,000"} <= {label for _, label in few}
    assert {"10", "10,000"} <= {label for _, label in many} and not {"20", "50"} & {label for _, label in many}


def test_the_ideal_line_goes_from_the_baseline_to_the_largest_size(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", nodes, (90.0 * nodes, 91.0 * nodes)) for nodes in (2, 4, 16)))
    (figure,) = section(assemble.sections(runs), "throughput").figures
    curve, ideal = figure.series
    first = curve.spots[0].y
    assert curve.column("x") == (2, 4, 16) and ideal.kind == "ideal"
    assert list(ideal.spots) == [Spot(2, first), Spot(16, 8 * first)]
    assert all(spot.low < spot.y < spot.high for spot in curve.spots)


def test_published_curves_are_hollow_and_join_the_strategies_of_one_table() -> None:
    found = lines.of(results.load(["reference:CSCS internship report 2017, table 1"]))
    assert [line.name for line in found] == ["parameter servers"] * 2
    assert all(line.style.hollow for line in found)
    assert {line.facets.backend for line in found} == {("distributed_replicated", "parameter_server")}
    assert [point.workers for point in found[0].curve.points] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_efficiencies_that_were_published_without_a_throughput_are_points() -> None:
    found = section(assemble.sections(results.load(["reference:Cori"])), "efficiency").figures
    (series,) = [one for one in found[0].series if one.kind == "curve"]
    assert [spot[:2] for spot in series.spots] == [(128, 0.8), (512, 0.23)] and series.style.hollow


def test_names_tell_only_what_differs_from_the_usual_terms(tmp_path: Path) -> None:
    usual = [made.record("pytorch", nodes, transport="mpi", batch_size=64) for nodes in (1, 2, 4)]
    gloo = [made.record("pytorch", nodes, transport="gloo", batch_size=64) for nodes in (1, 2)]
    other = made.record("pytorch", 2, transport="mpi", batch_size=32)
    found = lines.of(loaded(tmp_path, *usual, *gloo, other))
    weak = [line.name for line in found if line.curve.scaling == "weak"]
    assert sorted(weak) == ["pytorch gloo", "pytorch mpi", "pytorch mpi, batch 32 per device"]
    assert "batch 64 per device" in lines.usual_terms(found)


def test_families_have_markers_of_their_own(tmp_path: Path) -> None:
    backends = ("parameter_server", "distributed_replicated", "multi_worker_mirrored", "horovod", "pytorch")
    found = lines.of(loaded(tmp_path, *(made.record(backend) for backend in backends)))
    shapes: dict[str, set[str]] = {}
    for line in found:
        shapes.setdefault(str(line.curve.facets["family"]), set()).add(line.style.marker)
    assert all(shapes[family] <= set(lines.MARKERS[family]) for family in shapes)
    assert len({line.style.marker for line in found}) == len({line.style.colour for line in found}) == 5


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_comparison_of_everything_has_no_two_curves_that_look_alike(tmp_path: Path, device: str) -> None:
    """There are more contenders than colours: those of one backend and framework share one, with different markers."""
    everything = contenders([EVERY], device)
    found = lines.of(loaded(tmp_path, *(made.record(**one, device=device) for one in everything)))
    assert len(found) == len({(line.style.colour, line.style.marker) for line in found}) == len(everything)
    colours = {(line.facets.backend, line.facets.framework): line.style.colour for line in found}
    assert len(set(colours.values())) == len(colours)


def test_systems_with_one_backend_have_a_hue_each_and_the_same_in_all_figures(tmp_path: Path) -> None:
    sites = ("a:gpu", "b:gpu", "c:gpu")
    several = [made.record("pytorch", n, (90.0 * n, 91.0 * n), site=site) for site in sites for n in (1, 2)]
    other = made.record("horovod", 1, site="b:gpu")
    sections = assemble.sections(loaded(tmp_path, *several, other))
    hues = {}
    for name in ("throughput", "efficiency"):
        (figure,) = section(sections, name).figures
        curves = [series for series in figure.series if series.kind == "curve"]
        hues[name] = {(each.name, each.group): each.style.colour for each in curves}
        assert len(set(hues[name].values())) == len(curves), hues
    assert len(hues["throughput"]) == 4 and hues["efficiency"].items() <= hues["throughput"].items()
    usual = lines.look("pytorch", "torch", "gloo").colour
    assert hues["throughput"]["pytorch", "a:gpu"] == usual


def test_more_systems_than_colours_share_that_of_their_backend() -> None:
    point = [Spot(1, 1.0)]
    many = [Series("pytorch", "curve", point, Style("c8"), ANYTHING, f"system {number}") for number in range(12)]
    colours = [each.style.colour for each in figures.by_system([*many, Series("h", "curve", point, Style("c1"))])]
    assert colours[0] == "c8" and colours[-1] == "c1" and colours[9:12] == ["c8"] * 3 and len(set(colours)) == 10


def test_a_backend_has_its_colour_and_marker_on_every_page(tmp_path: Path) -> None:
    alone = {"pytorch": made.record("pytorch"), "parameter_server": made.record("parameter_server")}
    together = {line.name: line for line in lines.of(loaded(tmp_path / "all", *alone.values(), made.record("horovod")))}
    for backend, record in alone.items():
        (line,) = lines.of(loaded(tmp_path / backend, record))
        assert line.style == together[backend].style
    published = [line for line in lines.of(results.load(["reference"])) if line.facets.backend == ("parameter_server",)]
    assert {line.style.colour for line in published} == {together["parameter_server"].style.colour}


def test_a_sweep_has_one_line_for_each_placement(tmp_path: Path) -> None:
    runs = [
        made.record("parameter_server", 4, (img, img + 1), ps=ps, placement=placement)
        for placement, tried in {"greedy": {1: 300.0, 4: 390.0}, "round_robin": {1: 280.0, 2: 250.0}}.items()
        for ps, img in tried.items()
    ]
    (figure,) = section(assemble.sections(loaded(tmp_path, *runs)), "ps-sweep").figures
    found = {series.name: series.column("x") for series in figure.series}
    assert found == {"4 workers, greedy, best of 4": (1, 4), "4 workers, round_robin": (1, 2)}
    assert len({(series.style.dash, series.style.marker) for series in figure.series}) == 2


def test_efficiencies_on_one_axis_have_one_base_first_one_node_then_the_one_that_the_answer_and_the_tables_have(
    tmp_path: Path,
) -> None:
    small = [made.record("parameter_server", n, (100.0 * n**0.9,)) for n in (1, 2, 8, 16)]
    large = [made.record("horovod", n, (100.0 * n**0.95,)) for n in (8, 16)]
    runs = loaded(tmp_path, *small, *large)
    found = assemble.sections(runs)
    first, second = section(found, "efficiency").figures
    (answer,) = section(found, "answer").answers
    assert any(sentence.startswith("From 8 to 16 nodes") for sentence in answer.sentences)
    # Efficiencies on another base than 1 node would puzzle those who know them.
    assert answer.figures[0] == "throughput-inception3-synthetic"
    (points,) = section(found, "points").tables
    shown = [dict(zip(points.columns, cells, strict=True)) for _, cells in points.rows]
    assert {row["relative to"] for row in shown} == {"8 workers"}
    assert [row["efficiency"] for row in shown if row["backend"] == "horovod"] == pytest.approx([1, 2**-0.05])
    terminal = of_runs.table_of_runs(runs).columns
    efficiency = next(column.values for column in terminal if column.heading == "scaling efficiency")
    assert sorted(efficiency or ()) == pytest.approx(sorted(row["efficiency"] for row in shown))
    assert first.y.name == "scaling efficiency, relative to 1 node"
    assert first.note == "Not measured on 1 node, so not shown: horovod on daint:gpu."
    assert [series.name for series in first.series] == ["parameter_server", "ideal"]
    assert first.series[0].column("y") == pytest.approx([n**-0.1 for n in (1, 2, 8, 16)])
    assert second.y.name == "scaling efficiency, relative to 8 nodes"
    shares = {series.name: dict(zip(series.column("x"), series.column("y"), strict=True)) for series in second.series}
    assert shares["horovod"] == pytest.approx({8: 1.0, 16: 2**-0.05})
    assert shares["parameter_server"] == pytest.approx({8: 1.0, 16: 2**-0.1})


def test_efficiencies_on_several_devices_per_node_are_relative_to_workers(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", nodes, devices_per_node=4) for nodes in (1, 2)))
    (figure,) = section(assemble.sections(runs), "efficiency").figures
    assert figure.y.name == "scaling efficiency, relative to 4 workers"


def test_a_curve_without_the_common_base_has_a_figure_with_its_own_and_no_efficiency_elsewhere(tmp_path: Path) -> None:
    several = [made.record(name, n) for name in ("parameter_server", "pytorch") for n in (1, 2)]
    other = [made.record("horovod", n) for n in (4, 8)]
    found = assemble.sections(loaded(tmp_path, *several, *other))
    drawn = {figure.y.name: [each.name for each in figure.series] for figure in section(found, "efficiency").figures}
    assert drawn == {
        "scaling efficiency, relative to 1 node": ["parameter_server", "pytorch", "ideal"],
        "scaling efficiency, relative to 4 nodes": ["horovod", "ideal"],
    }
    (points,) = section(found, "points").tables
    shown = [dict(zip(points.columns, cells, strict=True)) for _, cells in points.rows]
    assert all(math.isnan(row["efficiency"]) for row in shown if row["backend"] == "horovod")


def test_an_interval_does_not_stretch_its_axis_but_points_out_of_it() -> None:
    curve = [Spot(1, 1.0), Spot(2, 0.8, 0.01, 35.0), Spot(4, 0.6, 0.58, 0.62)]
    axis = Axis("efficiency", "linear", percent=True, from_zero=True)
    series = [Series("a", "curve", curve, Style("c0", "circle"))]
    low, high = figures.window(series, axis)
    assert low == 0 and 1.0 < high < 1.3
    log_low, log_high = figures.window(series, Axis("img/s", "log"))
    assert 0.3 < log_low < 0.6 and 1.0 < log_high < 1.5
    figure, axes = pyplot.subplots()
    static.draw(Figure("f", "f", "", Axis("workers", "log", ((1.0, "1"), (4.0, "4"))), axis, series), axes)
    assert [line.get_marker() for line in axes.lines if line.get_marker() in ("^", "v")] == ["^"]
    pyplot.close(figure)


@pytest.mark.parametrize("axis", [Axis("ms", "linear"), Axis("img/s", "log"), Axis("ms", "linear", from_zero=True)])
def test_three_tenths_of_a_percent_are_no_arch(axis: Axis) -> None:
    spots = [Spot(number, value) for number, value in enumerate((475.5, 477.0, 475.5))]
    for kind in ("curve", "accent"):
        low, high = figures.window([Series("a", kind, spots, Style("c0"))], axis)  # type: ignore[arg-type]
        assert high - low > 0.2 * 477 and low < 475.5 and high > 477
    overhead = Axis("overhead", "linear", percent=True, from_zero=True)
    low, high = figures.window([Series("a", "curve", [Spot(1, 0.001), Spot(2, -0.002)], Style("c0"))], overhead)
    assert high - low > 0.1 and low < -0.002


def test_intervals_at_one_size_stand_side_by_side_where_they_do_not_reach_the_next() -> None:
    spots = [Spot(n, 0.9, 0.8, 1.0) for n in (1, 2, 4)]
    curves = [Series(name, "curve", spots, Style("c0")) for name in "abcdefgh"]
    plain = Series("published", "curve", [Spot(1, 0.9)], Style("c1"))
    *moved, still = figures.side_by_side([*curves, plain], log=True)
    at = np.array([each.column("x") for each in moved])
    assert still is plain and np.prod(at, axis=0) == pytest.approx([1, 2**8, 4**8])
    assert (np.diff(at, axis=0) > 0).all() and at[-1, 0] / at[0, 0] < 2**0.25
    alone = figures.side_by_side([replace(each, spots=spots[:1]) for each in curves[:2]], log=True)
    assert alone[0].spots[0].x < 1 < alone[1].spots[0].x  # type: ignore[operator]


def test_axes_of_counts_have_whole_numbers_and_logarithmic_ones_minor_ticks() -> None:
    assert {"1,000", "1,200", "1,500"} <= {label for _, label in figures.decade_ticks([1119, 1190])}
    assert [label for _, label in figures.count_ticks([0, 1])] == ["0", "1"]
    assert [label for _, label in figures.count_ticks(range(1000))] == ["0", "200", "400", "600", "800"]
    axis = Axis("workers", "log", figures.measured_ticks([1, 2, 4]))
    assert axis.title == "workers (log)" and axis.minor == [3.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert plotly.layout(Figure("f", "f", "", axis, axis, ()))["xaxis"]["minor"]["tickvals"] == axis.minor


def test_a_sweep_stars_the_best_number_of_servers_at_each_size(tmp_path: Path) -> None:
    tried = {1: 300.0, 2: 390.0, 4: 350.0}
    runs = loaded(tmp_path, *(made.record("parameter_server", 4, (img, img + 1), ps=ps) for ps, img in tried.items()))
    (figure,) = section(assemble.sections(runs), "ps-sweep").figures
    (series,) = figure.series
    assert [(spot.x, spot.starred) for spot in series.spots] == [(1, False), (2, True), (4, False)]
    assert series.name == "4 workers, best of 3"


def test_io_overhead_is_the_share_of_the_synthetic_throughput(tmp_path: Path) -> None:
    runs = loaded(
        tmp_path,
        *(made.record("pytorch", n, (100.0 * n, 100.0 * n)) for n in (1, 2)),
        *(made.record("pytorch", n, (90.0 * n, 90.0 * n), data="/images") for n in (1, 2)),
    )
    (figure,) = section(assemble.sections(runs), "io-overhead").figures
    assert figure.series[0].column("y") == pytest.approx((0.1, 0.1))


def test_sizes_that_share_a_global_batch_by_chance_are_no_strong_scaling(tmp_path: Path) -> None:
    chance = [made.record("pytorch", nodes, batch_size=64 // nodes) for nodes in (1, 2)]
    assert "strong-scaling" not in {one.name for one in assemble.sections(loaded(tmp_path, *chance))}
    meant = made.save(tmp_path / "more", [made.record("pytorch", 4, batch_size=16)])
    runs = results.load([tmp_path / "records", meant])
    assert section(assemble.sections(runs), "strong-scaling").figures[0].series[0].column("x") == (1, 2, 4)


def test_a_slow_rank_is_pointed_out(tmp_path: Path) -> None:
    run = sample.one(random.Random(0), 4000.0, backend="pytorch", nodes=32)
    (figure,) = section(assemble.sections(loaded(tmp_path, run)), "steps").figures
    (slow,) = figure.series[-1].spots
    assert slow.x == 32 // 3 and "rank 10 on nid00010" in slow.hover[0]


def test_step_times_of_few_ranks_are_not_drawn(tmp_path: Path) -> None:
    two = [made.record(name, nodes) for name in ("pytorch", "horovod") for nodes in (1, 2)]
    sections = assemble.sections(loaded(tmp_path, *two))
    assert "steps" not in {each.name for each in sections}
    (answer,) = section(sections, "answer").answers
    assert answer.figures == ["efficiency-inception3-synthetic", "throughput-inception3-synthetic"]
    assert len(run_figures.steps(lines.of(loaded(tmp_path / "four", made.record("pytorch", 4))))) == 1


def test_steps_of_an_emulated_device_are_in_its_own_time(tmp_path: Path) -> None:
    times = {"late_sum_s": 0.01, "late_p99_s": 0.001, "stalled_s": 1.0, "computed_s": 1.0}
    kept = Kept(busy=[0.2], sent=1000, resent=0, link_bytes_per_s=None, **times)
    run = made.record("pytorch", device="emulated:p100", dilation=4.0, kept=[kept])
    (file,) = made.save(tmp_path, [run]).glob("*/record.json")
    (median_ms,) = run_figures.read_steps(file)["p50"]
    assert median_ms == pytest.approx(1e3 * run.spec.batch_size / 100.0)


def test_of_very_many_ranks_the_slowest_are_among_those_shown(tmp_path: Path) -> None:
    medians = [2.0 if rank == 777 else 1.0 for rank in range(1000)]
    ranks = pandas.DataFrame({"rank": range(1000), "hosts": "h", "p50": medians, "longest": 2.0})
    ranks = ranks.assign(p1=1.0, p99=1.0)
    (line,) = lines.of(loaded(tmp_path, made.record("pytorch")))
    figure = run_figures.of_ranks(line, 1000, "runs/x/record.json", ranks)
    usual, slow = figure.series
    assert len(usual.spots) == run_figures.SHOWN_RANKS - 1 and slow.column("x") == (777,)
    assert "The slowest 256 of 1,000 ranks" in figure.note


def test_six_runs_of_one_measurement_make_a_history(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", 2, day=day) for day in range(6)), made.record("horovod", 2))
    (figure,) = run_figures.history(runs)
    assert figure.series[0].spots[0].x == "2026-01-01T00:00:00" and len(figure.series[0].spots) == 6


def test_runs_of_one_job_have_no_history_on_the_page(tmp_path: Path) -> None:
    shared = [made.record("pytorch", 2, day=day / 24, variables={"SLURM_JOB_ID": "7"}) for day in range(6)]
    assert run_figures.history(loaded(tmp_path, *shared)) == []


def test_a_run_is_filtered_by_what_it_is_and_no_row_is_lost(tmp_path: Path) -> None:
    runs = loaded(tmp_path, made.record("pytorch"), made.record("horovod", status="failed", reason="why"))
    embedded = document.data(assemble.page(runs, ["x"], "now"))
    assert [sum(column) for column in zip(*embedded["runs"], strict=True)][1:] == [2, 1]
    assert len(embedded["tables"]["runs"]["facets"]) == 2
    assert embedded["tables"]["without-number"]["columns"][1]["words"] == ["why"]


def test_columns_of_text_hold_nothing_that_the_page_could_not_write_as_text(tmp_path: Path) -> None:
    runs = loaded(tmp_path, made.record("pytorch"), made.record("horovod", status="failed", reason="why"))
    runs = [replace(run, energy="package (powercap)", joules=0.25, joules_values=(0.25,)) for run in runs]
    embedded = document.data(assemble.page(runs, ["x"], "now"))["tables"]
    (joules,) = (each for each in embedded["energy-runs"]["columns"] if each["name"] == "J/img")
    assert joules["kind"] == "figure"
    every = [each for table in embedded.values() for each in table["columns"]]
    for words in (column["words"] for column in every if column["kind"] == "text"):
        assert all(word is None or isinstance(word, str) for word in words)


# --- the scaling model ----------------------------------------------------------------------------


def model_figure(found: list[Section], kind: str) -> Figure:
    """The first figure of a kind in the section on the scaling model."""
    return next(one for one in section(found, "model").figures if one.name.startswith(f"model-{kind}"))


@pytest.fixture(scope="module")
def daint() -> list[Section]:
    """The sections of what was published about Piz Daint in 2017."""
    return assemble.sections(results.load(["reference:CSCS internship report 2017, table 1"]))


def test_the_answer_for_a_model_knows_how_runs_of_other_models_scatter() -> None:
    (first, *_) = section(assemble.sections(results.load(["reference:daint"])), "answer").answers
    assert any("the most that is known here is 11.6 %" in sentence for sentence in first.sentences)


def test_a_law_fitted_to_the_results_is_drawn_beside_them_and_beyond(daint: list[Section]) -> None:
    band, line, measured, ideal = model_figure(daint, "predicted").series
    assert (band.kind, line.kind, measured.kind, ideal.kind) == ("band", "line", "accent", "ideal")
    assert measured.column("x") == (1, 2, 4, 8, 16, 32, 64, 128) and measured.style.hollow
    assert line.column("x") == (*measured.column("x"), 256, 512)
    assert line.column("y")[:8] == pytest.approx(measured.column("y"), rel=0.03)
    assert all(spot.low <= spot.y <= spot.high for spot in band.spots) and band.column("y") == line.column("y")
    assert "128 workers on 128 nodes, 116 PS" in line.spots[7].hover


def test_the_server_that_bounds_the_step_stands_out_with_its_largest_tensor(daint: list[Section]) -> None:
    figure = model_figure(daint, "servers")
    full, others, mean, sliced = figure.series
    (fullest,) = full.spots
    assert (fullest.x, fullest.y) == (75, pytest.approx(8.2, rel=1e-3)) and "dense.kernel" in full.name
    held = others.column("y")
    assert len(held) == 115 and max(held) < fullest.y
    assert mean.spots[0].y == pytest.approx((fullest.y + sum(held)) / 116) and mean.spots[0].y < sliced.spots[0].y < 1.5
    assert "PS 75 holds dense.kernel (8.2 MB): 127 workers pull and push 1.04 GB each way" in figure.note


def test_the_parts_of_a_step_end_when_the_law_s_step_does(daint: list[Section]) -> None:
    parts = model_figure(daint, "spent").series
    published, top = (series.spots[7].y for series in (parts[-1], parts[-2]))
    assert top == pytest.approx(128 * 64 / 9219.7, rel=0.03) and published == pytest.approx(128 * 64 / 9219.7)
    stacked = [one for one in parts if one.kind == "column"]
    assert all(above.column("low") == below.column("y") for below, above in itertools.pairwise(stacked))


def test_an_allreduce_has_no_servers_to_draw() -> None:
    found = assemble.sections(results.load(["reference:sarus"]))
    kinds = [one.name.split("-")[1] for one in section(found, "model").figures]
    assert kinds == ["predicted", "spent"] * 2  # two versions of Horovod


def test_the_model_s_section_tells_how_well_it_fits_and_its_parameters(daint: list[Section]) -> None:
    shown = section(daint, "model")
    fits: list[Any] = [cells for _, cells in shown.tables[0].rows]
    assert [(row[0], row[7]) for row in fits] == [("distributed_replicated", 1), ("parameter_server", 6)]
    assert all(0 < row[1] < 0.03 for row in fits)
    (parameters,) = (items for title, items in shown.lists.items() if title.startswith("Parameters of Piz Daint"))
    throughput = re.match(r"throughput: (.*) GB/s \((.*) – (.*)\); fitted to 7 runs: ", parameters[0])
    assert throughput and any("message: " in each and "; not identified" in each for each in parameters)
    assert [row[4] for row in fits] == ["no", "no"] and all(row[5] > 0 and row[6] > 0.1 for row in fits)
    value, low, high = map(float, throughput.groups())
    assert 2.2 < low < value < high < 2.8


def test_two_sizes_are_too_few_for_a_fit(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", nodes, (90.0 * nodes,)) for nodes in (1, 2)))
    assert "model" not in {one.name for one in assemble.sections(runs)}


def test_one_group_too_many_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelled, "MOST_GROUPS", 1)
    four = [made.record("pytorch", nodes, (90.0 * nodes,)) for nodes in (1, 2, 4, 8)]
    three = [made.record("horovod", nodes, (90.0 * nodes,)) for nodes in (1, 2, 4)]
    found = section(assemble.sections(loaded(tmp_path, *four, *three)), "model")
    assert len(found.figures) == 2 and all("pytorch" in one.name for one in found.figures)
    assert "Horovod 0.28.1" in found.paragraphs[-1]


def test_runs_of_one_configuration_are_fitted_as_one_with_their_mean(tmp_path: Path) -> None:
    again = [made.record("pytorch", 2, (speed, speed), day=day) for day, speed in enumerate((170.0, 180.0, 190.0))]
    runs = loaded(tmp_path, *again, made.record("pytorch", 1, (100.0, 100.0)))
    (group,), left_out = observations.groups(runs)
    single, double = group.observations
    assert double.img_per_s == pytest.approx(180.0) and single.img_per_s == pytest.approx(100.0)
    # Of three degrees of freedom in the group two are its own; they count beside four of the usual spread.
    own, usual = (10 / 180) ** 2, 2 * (10 / 180) ** 2 / 3
    assert double.error == pytest.approx(math.hypot(0.01, math.sqrt((4 * usual + 2 * own) / 6 / 3))) and left_out == []


def test_of_very_many_configurations_the_best_at_each_size_are_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelled, "MOST_FITTED", 5)
    tried = [(nodes, ps) for nodes in (1, 2, 4) for ps in range(1, nodes + 1)]
    runs = [made.record("parameter_server", nodes, (90.0 * nodes + ps,), ps=ps) for nodes, ps in tried]
    fits = section(assemble.sections(loaded(tmp_path, *runs)), "model").tables[0]
    assert fits.rows[0][1][7] == 2  # beside that on a single worker


def test_servers_are_tried_in_numbers_that_are_about_1_4_times_one_another() -> None:
    assert modelled.counts(20) == [1, 2, 3, 4, 6, 8, 11, 16, 20] and modelled.counts(1) == [1]


def test_columns_and_bands_are_the_same_in_the_page_and_in_files() -> None:
    style = Style("c0")
    column = Series("c", "column", [Spot(0, 2.0, 1.0), Spot(1, 3.0, 2.0), Spot(2, 4.0, 3.0)], style, ANYTHING)
    area_ = [Spot(1.0, 1.0, 0.5, 2.0), Spot(2.0, 2.0, 1.0, 3.0), Spot(3.0, 3.0, 2.0, 4.0)]
    band = Series("b", "band", area_, style, ANYTHING)
    axis = Axis("x", "linear", ((0.0, "a"), (1.0, "b")))
    bars, filled = map(plotly.trace, (column, band))
    assert (bars["base"], bars["y"]) == ([1, 2, 3], [1, 1, 1])
    assert (filled["x"], filled["y"]) == ([1, 2, 3, 3, 2, 1], [2, 3, 4, 2, 1, 0.5])
    _, axes = pyplot.subplots()
    static.draw(Figure("f", "f", "", axis, axis, (column, band)), axes)
    boxes = [patch.get_bbox() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [(box.y0, box.y1) for box in boxes] == [(1, 2), (2, 3), (3, 4)]
    (area,) = axes.collections
    assert area.get_paths()[0].get_extents().ymax == 4
    pyplot.close()


# --- the page -------------------------------------------------------------------------------------


def test_no_text_ends_the_element_that_holds_the_data(tmp_path: Path) -> None:
    reason = "</script><!--<script>"
    runs = loaded(tmp_path, made.record("horovod", status="failed", reason=reason))
    text = document.render(assemble.page(runs, ["x"], "now"))
    embedded = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    reasons = json.loads(embedded)["tables"]["without-number"]["columns"][1]
    assert "<" not in embedded and reasons["words"] == [reason]


def test_plotly_is_given_text_not_markup() -> None:
    hostile = "<a href='javascript:x'>&"
    series = Series(hostile, "curve", [Spot(1, 1.0, hover=(hostile, "x" * 200))], Style("c0", "circle"), ANYTHING)
    axis = Axis(hostile, "linear")
    figure = Figure("f", hostile, "", axis, axis, (series,), marks=[("2026-01-01", hostile)])
    trace = plotly.trace(series)
    layout = plotly.layout(figure)
    for text in (trace["name"], layout["xaxis"]["title"]["text"], layout["annotations"][0]["text"]):
        assert text == "&lt;a href='javascript:x'&gt;&amp;"
    hover = trace["hovertext"][0]
    assert hover.startswith("<b>&lt;a href") and max(map(len, hover.split("<br>"))) < 100


def test_the_answer_stands_first_then_the_verdict_with_its_table_and_what_was_not_equal(tmp_path: Path) -> None:
    runs = [
        made.record(backend, n, (n**power * 100, n**power * 101, n**power * 100.5), apart=True)
        for backend, power in (("pytorch", 1), ("parameter_server", 0.5))
        for n in (1, 2)
    ]
    made_page = assemble.page(loaded(tmp_path, *runs), ["x"], "now")
    first, verdict = made_page.sections[:2]
    (answer,) = first.answers
    assert "is fastest on 2 nodes" in answer.sentences[0]
    assert [(number, sure) for number, _, sure in answer.numbers] == [
        ("201 img/s", True),
        ("1.41 × [1.40, 1.43]", True),
        ("100.0 %", True),
    ]
    assert answer.figures[0] == "efficiency-inception3-synthetic" and len(answer.figures) == 2
    assert set(answer.facets.backend) == {"parameter_server", "pytorch"}
    assert verdict.answer.startswith("Yes. On daint:gpu") and len(verdict.tables[0].rows) == 2
    assert "transport: gloo against grpc" in verdict.lists["Not equal"][0]
    text = document.render(made_page)
    assert f'<p class="answer">{verdict.answer[:40]}' in text and 'data-table="verdict"' in text


def test_an_undecided_ratio_is_no_headline_number(tmp_path: Path) -> None:
    runs = [
        made.record(name, n, [n * value for value in values], apart=True)
        for name, values in (("pytorch", (100.0, 130.0, 70.0)), ("parameter_server", (95.0, 125.0, 65.0)))
        for n in (1, 2)
    ]
    made_page = assemble.page(loaded(tmp_path, *runs), ["x"], "now")
    (answer,) = made_page.sections[0].answers
    rate, ratio, share = answer.numbers
    assert ratio[0] == "undecided" and ratio[1].startswith("1.06 × [0.48, 2.30] the img/s of")
    assert not any((rate[2], ratio[2], share[2]))
    assert document.render(made_page).count('<div class="unsure">') == 3


def test_systems_have_short_names_and_the_long_one_once(tmp_path: Path) -> None:
    times = {"late_sum_s": 0.01, "late_p99_s": 0.001, "stalled_s": 1.0, "computed_s": 1.0}
    kept = Kept(busy=[0.2], sent=1000, resent=0, link_bytes_per_s=6e8, **times)
    run = made.record("pytorch", device="emulated:p100", dilation=4.0, kept=[kept])
    text = document.render(assemble.page(loaded(tmp_path, run), ["x"], "now"))
    assert "<h1>Training throughput on emulated P100 at 2.4 GB/s</h1>" in text
    assert text.count("daint:gpu, emulated NVIDIA Tesla P100 with links of 2.4 GB/s") == 1


def test_a_page_of_many_systems_counts_them_above_its_answer(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", nodes, site=f"site{nodes}:gpu") for nodes in (1, 2, 4, 8)))
    plain, titled = (assemble.page(runs, ["x"], "now", title) for title in (None, "Ours"))
    assert plain.title == "Training throughput on 4 systems"
    assert plain.lead == "inception3: pytorch, measured on 1 to 8 workers."
    assert titled.lead == "inception3 on 4 systems: pytorch, measured on 1 to 8 workers."


def test_the_answer_stands_above_the_filters_and_links_skip_both(tmp_path: Path) -> None:
    runs = loaded(tmp_path, *(made.record("pytorch", nodes) for nodes in (1, 2)))
    text = document.render(assemble.page(runs, ["x"], "now"))
    marks = ('href="#answer">Skip to the answer', 'class="answer"', 'href="#verdict">Skip the filters', 'id="filters"')
    places = [text.index(mark) for mark in (*marks, 'id="throughput"')]
    assert places == sorted(places)


def test_a_change_of_level_is_marked_in_its_history(tmp_path: Path) -> None:
    rates = [100.0] * 30 + [90.0] * 30
    runs = loaded(tmp_path, *(made.record(img_per_s=(v, v + 9, v - 9), day=day) for day, v in enumerate(rates)))
    made_sections = assemble.sections(runs)
    (figure,) = section(made_sections, "history").figures
    points, level = figure.series
    assert list(figure.marks) == [("2026-01-31T00:00:00", "-10.0%")] and len(points.spots) == 60
    assert plotly.layout(figure)["shapes"][0]["x0"] == "2026-01-31T00:00:00"
    assert level.column("y") == pytest.approx((100, 100, 90, 90), rel=0.01)
    ((text, linked),) = section(made_sections, "slower").links
    assert text.startswith("2026-01-31: -10.0%") and linked == figure


def test_every_point_leads_to_its_record_or_to_the_publication(tmp_path: Path, daint: list[Section]) -> None:
    runs = [
        made.record("pytorch", n, (100.0 * n**0.9,) * 2, data=data) for n in (1, 2, 4) for data in ("synthetic", "/d")
    ]
    runs += [made.record("parameter_server", 4, (300.0 + ps,), ps=ps) for ps in (1, 2, 4)]
    runs += [made.record(img_per_s=(99.0, 101.0), day=day) for day in range(6)]
    found = assemble.sections(loaded(tmp_path, *runs))
    kinds, publications = set(), {each.source for each in results.load(["reference"])}
    for figure in (figure for each in (*found, *daint) for figure in each.figures):
        for series in (series for series in figure.series if series.kind in ("curve", "accent")):
            kinds.add(figure.name.split("-")[0])
            assert all(source in publications or Path(source).is_file() for source in series.column("source"))
    assert kinds == {"throughput", "efficiency", "ps", "model", "io", "steps", "history"}


def test_texts_of_records_are_texts_in_the_page(tmp_path: Path) -> None:
    text = document.render(assemble.page(loaded(tmp_path, made.record(site="<b>daint")), ["<i>x"], "now"))
    assert "<b>daint" not in text and "<i>x" not in text and "&lt;i&gt;x" in text


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2 of two colours such as #1a2b3c."""

    def luminance(colour: str) -> float:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISIONS = {
    "full": np.eye(3),
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def seen(colours: list[str], vision: str) -> Any:
    """CIE L*a*b* of colours such as #1a2b3c, as people with this colour vision see them: [colours, 3]."""
    parts = np.array([[int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)] for colour in colours])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.clip(linear @ np.transpose(VISIONS[vision]), 0, 1) @ np.transpose(TO_XYZ) / np.sum(TO_XYZ, axis=1)
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29).T
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]).T


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("kind", "cs")
def test_any_two_colours_of_a_plot_are_told_apart(theme: dict[str, str], vision: str, kind: str) -> None:
    """As far apart in L*a*b* as the colours were when each pair's ΔE was seen to be 10 or more by CIEDE2000."""
    names = [name for name in theme if re.fullmatch(rf"{kind}\d", name)] + ["grey"] * (kind == "c")
    colours = dict(zip(names, seen([theme[name] for name in names], vision), strict=True))
    near = {pair: np.linalg.norm(colours[pair[0]] - colours[pair[1]]) for pair in itertools.combinations(names, 2)}
    assert len(names) >= 8 and min(near.values()) >= 13.5, min(near, key=lambda pair: near[pair])


def test_plots_draw_in_no_other_colours_than_those_that_are_told_apart(tmp_path: Path, daint: list[Section]) -> None:
    nightly = [made.record(img_per_s=(v, v + 1, v - 1), day=day) for day, v in enumerate([100.0] * 8 + [90.0] * 8)]
    sweep = [made.record("parameter_server", 4, (300.0 + ps,), ps=ps) for ps in (1, 2, 4)]
    found = [*daint, *assemble.sections(loaded(tmp_path, *nightly, *sweep))]
    every = [figure for each in found for figure in each.figures]
    assert any(figure.marks for figure in every) and any(figure.name.startswith("ps-sweep") for figure in every)
    structure = {"ink", "muted", "grid", "paper"}
    for figure in every:
        drawn = json.dumps([*map(plotly.trace, figure.series), plotly.layout(figure)])
        used = set(re.findall(r'"@(\w+)"', drawn)) - structure
        kinds = {name[0] for name in used if name != "grey"}
        assert kinds == {"c"} or (kinds == {"s"} and "grey" not in used), (figure.name, used)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_curves_and_texts_stand_out_from_the_background(theme: dict[str, str]) -> None:
    drawn = theme.keys() - {"grid", "paper"}
    contrasts = {name: contrast(theme[name], theme["paper"]) for name in drawn}
    assert len(contrasts) == 18 + len(("grey", "ink", "muted")) and min(contrasts.values()) >= 3
    assert min(contrasts["ink"], contrasts["muted"]) >= 4.5


def test_the_style_sheet_has_texts_of_enough_contrast_on_all_its_backgrounds() -> None:
    style = (document.TEMPLATES / "page.css").read_text()
    blocks = re.findall(
        r"--paper: (#\w+); --raised: (#\w+); --ink: (#\w+); --muted: (#\w+);.*?--link: (#\w+); --mark: (#\w+)", style
    )
    assert len(blocks) == 4  # light, dark twice, print
    for paper, raised, ink, muted, link, mark in blocks:
        assert min(contrast(text, under) for text in (ink, muted, link) for under in (paper, raised)) >= 4.5
        assert contrast(ink, mark) >= 4.5


# --- files and the command ------------------------------------------------------------------------


def test_every_kind_of_figure_becomes_a_file(tmp_path: Path) -> None:
    made.save(tmp_path / "records", sample.nightly(random.Random(0), days=6))
    runs = results.load([tmp_path / "records", "reference:table 1"])
    drawn = [one.figures[0] for one in assemble.sections(runs) if one.figures]
    assert {"throughput", "efficiency", "io", "steps", "history"} <= {figure.name.split("-")[0] for figure in drawn}
    written = static.write(drawn, tmp_path / "figures", ["png", "svg", "pdf"])
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert len(written) == 3 * len(drawn) and all(path.read_bytes().startswith(starts[path.suffix]) for path in written)


def test_files_have_the_width_that_was_asked_for_one_axes_box_no_title_and_text_of_7_points(
    tmp_path: Path, daint: list[Section], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures_: list[Figure] = [section(daint, "efficiency").figures[0], *section(daint, "model").figures]
    boxes, sizes, titles, outside = set(), set(), set(), []

    def measured(canvas: pyplot.Figure, *_: Any, **__: Any) -> None:
        (axes,) = canvas.axes
        canvas.draw_without_rendering()
        width, height = canvas.get_size_inches()
        box = axes.get_position()
        boxes.add(tuple(round(25.4 * mm, 2) for mm in (width, box.x0 * width, box.width * width, box.height * height)))
        texts = [text for text in canvas.findobj(pyplot.Text) if text.get_text() and text.get_visible()]
        sizes.update(text.get_fontsize() for text in texts)
        titles.add(axes.get_title() or axes.get_title("left"))
        bottom, top = axes.get_ylim()
        ticks = [label for label in axes.get_yticklabels() if bottom <= label.get_position()[1] <= top]
        labels = [*ticks, axes.yaxis.label, axes.xaxis.label, *axes.get_legend().get_texts()]
        for label in (label for label in labels if label.get_text()):
            (x0, y0), (x1, y1) = label.get_window_extent().get_points()
            if not (x0 >= -1 and x1 <= width * canvas.dpi + 1 and y0 >= -1 and y1 <= height * canvas.dpi + 1):
                outside.append(label.get_text())

    monkeypatch.setattr(pyplot.Figure, "savefig", measured)
    static.write(figures_, tmp_path, ["pdf"], 84)
    assert len(figures_) >= 4 and len(boxes) == 1 and next(iter(boxes))[0] == 84
    assert min(sizes) >= 7 and titles == {""} and outside == []


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    drawn = list(section(assemble.sections(results.load(["reference:table 1"])), "throughput").figures[:1])
    first, second = (static.write(drawn, tmp_path / name, ["svg"])[0].read_bytes() for name in "ab")
    assert first == second


def test_the_command_writes_one_file_and_says_what_is_in_it(harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "runs", [made.record("pytorch", nodes) for nodes in (1, 2)])
    sources = ("runs", "reference:report 2017, table 1")
    done = harness("report", *sources, "--title", "Ours & theirs", "-o", "page.html").succeeded()
    assert done.stdout.startswith("page.html: 18 runs in ")
    assert "<title>Ours &amp; theirs</title>" in (tmp_path / "page.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "runs"]


def test_records_that_are_left_out_are_counted_and_named_on_the_page(harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "runs", [made.record("pytorch", nodes) for nodes in (1, 2, 4)])
    broken = sorted((tmp_path / "runs").glob("*/record.json"))[0]
    broken.write_text('{"schema": "<b>')
    harness("report", "runs").succeeded()
    page = (tmp_path / "report.html").read_text()
    assert "<summary>1 record left out, which cannot be read or believed</summary>" in page
    assert f"<li>{broken.relative_to(tmp_path)}: not a valid record" in page


def test_the_page_goes_to_standard_output_and_figures_into_a_folder(harness: Harness, tmp_path: Path) -> None:
    arguments = ("report", "reference:1712.09388", "-o", "-", "--figures", "new/figures", "--format", "svg")
    done = harness(*arguments).succeeded()
    assert done.stdout.startswith("<!doctype html>") and done.stderr == "new/figures: 2 files\n"
    assert len(list((tmp_path / "new/figures").glob("*.svg"))) == 2


@cases
def test_a_request_that_cannot_work_is_refused_in_one_line(harness: Harness, tmp_path: Path, case: Case) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    case.refused(harness(*case.words()))
    assert not (tmp_path / "report.html").exists()
