"""The report's page, as a browser shows it."""

import csv
import io
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.report.page import assemble
from tests import made
from tests.browser import sample
from tests.browser.conftest import Open, Opened, write

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b>&amp;"

THROUGHPUT = "#figure-throughput-inception3-synthetic"


def traces(shown: Opened, figure: str = THROUGHPUT) -> list[str]:
    """Names of the curves in a figure, with how many points each has."""
    curves = f"document.querySelector('{figure} .plot').data.filter((one) => one.mode === 'lines+markers')"
    return [f"{name}: {points}" for name, points in shown.evaluate(f"{curves}.map((one) => [one.name, one.x.length])")]


def rows(shown: Opened, table: str) -> int:
    """How many rows of a table are shown."""
    return shown.page.locator(f"[data-table={table}] tbody tr").count()


def cells(shown: Opened, table: str, column: str) -> list[str]:
    """The texts in a column of a table."""
    headings = shown.page.locator(f"[data-table={table}] th:visible").all_inner_texts()
    number = [heading.strip() for heading in headings].index(column) + 1
    return shown.page.locator(f"[data-table={table}] tbody td:nth-child({number})").all_inner_texts()


def uncheck(shown: Opened, facet: str, value: str) -> None:
    """Take a value out of the filters."""
    shown.page.locator(f"#filter-form input[name={facet}][value='{value}']").uncheck()
    shown.wait()


def test_the_page_asks_for_nothing_but_itself(shown: Opened, report: Path) -> None:
    assert [url for url in shown.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]


def test_the_page_names_no_address_to_load_from(report: Path) -> None:
    text = re.sub(r"<script.*?</script>", "", report.read_text(), flags=re.DOTALL)
    assert re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"|url\([^)]*\)|@import", text) == []


def test_every_contender_has_its_curve_with_a_point_for_each_size(shown: Opened) -> None:
    found = traces(shown)
    eight = (
        "distributed_replicated",
        "horovod torch gloo",
        "horovod torch mpi",
        "multi_worker_mirrored",
        "pytorch mpi",
    )
    assert {f"{name}: 8" for name in eight} <= set(found)
    assert "parameter servers: 8" in found  # of Piz Daint in 2017, joined from both strategies


def test_every_section_draws_its_chosen_figure(shown: Opened) -> None:
    names = ("throughput", "efficiency", "strong-scaling", "ps-sweep", "model", "io-overhead", "steps", "history")
    counts = {name: shown.page.locator(f"#{name} figure:not([hidden]) .main-svg").count() for name in names}
    assert all(counts.values()), counts


def counted(shown: Opened) -> tuple[int, int]:
    """The runs that are shown, of so many."""
    match = re.fullmatch(r"(\d+) of (\d+) runs shown, 4 without a number", shown.page.locator("#count").inner_text())
    assert match
    return int(match[1]), int(match[2])


def test_a_filter_takes_curves_rows_and_runs_away_and_reset_brings_them_back(shown: Opened) -> None:
    curves, points = traces(shown), rows(shown, "ps-search")
    every, of_every = counted(shown)
    assert every == of_every > 400
    uncheck(shown, "backend", "distributed_replicated")
    uncheck(shown, "origin", "published")
    assert not [one for one in traces(shown) if one.startswith(("distributed_replicated", "parameter servers"))]
    assert len(traces(shown)) < len(curves) and rows(shown, "ps-search") == points / 2
    left, of = counted(shown)
    assert 200 < left < every == of
    shown.page.locator("#reset").click()
    shown.wait()
    assert (traces(shown), rows(shown, "ps-search")) == (curves, points)


def test_filters_reach_the_comparison_and_what_they_do_not_reach_says_so(shown: Opened) -> None:
    note = shown.page.locator("#verdict .everything")
    every = cells(shown, "verdict", "toolkit")
    assert any("Horovod" in one for one in every) and note.is_hidden()
    uncheck(shown, "backend", "horovod")
    left = cells(shown, "verdict", "toolkit")
    assert left and len(left) == len([one for one in every if "Horovod" not in one])
    assert "all results of the page" in note.inner_text() and shown.page.locator("#model .everything").is_visible()
    uncheck(shown, "backend", "parameter_server")  # of every pair the other side
    uncheck(shown, "backend", "distributed_replicated")
    assert rows(shown, "verdict") == 0


def test_every_figure_of_the_model_is_drawn_and_filtered(shown: Opened) -> None:
    menu, drawn = shown.page.locator("#model select[data-chooser]"), shown.page.locator("#model figure:not([hidden])")
    kinds: dict[str, set[str]] = {}
    for option in menu.locator("option").all():
        name = option.get_attribute("value")
        menu.select_option(name)
        assert drawn.get_attribute("data-figure") == name and drawn.locator(".main-svg").count()
        plot = f"document.querySelector('#figure-{name} .plot')"
        kinds.setdefault(str(name).split("-")[1], set()).update(shown.evaluate(f"{plot}.data.map((one) => one.type)"))
        assert shown.evaluate(f"{plot}.querySelectorAll('.trace, .point').length") > 1
    assert kinds == {
        "predicted": {"scatter"},
        "servers": {"bar", "scatter"},
        "spent": {"bar", "scatter"},
    }
    fits = rows(shown, "model-fits")
    uncheck(shown, "backend", "pytorch")
    titles = menu.locator("option:not([hidden])").all_inner_texts()
    assert titles and not [title for title in titles if title.startswith("daint:gpu, PyTorch 2.13.0, allreduce")]
    assert 0 < rows(shown, "model-fits") < fits


def test_filters_of_another_page_that_this_one_does_not_know_leave_everything_shown(shown: Opened) -> None:
    shown.go("#backend=unheard_of&nonsense=1&system=%E0")
    every, of = counted(shown)
    assert every == of > 400


def test_the_first_screen_has_the_answer_three_numbers_and_two_plots(shown: Opened) -> None:
    shown.page.set_viewport_size({"width": 1400, "height": 900})
    answer = shown.page.locator("#answer .answers:not([hidden])")
    assert "fastest on 128 nodes" in answer.locator(".answer").inner_text()
    assert answer.locator(".numbers dd").count() == 3
    plots = answer.locator(".plot").all()
    assert len(plots) == 2 and all(plot.locator(".main-svg").count() for plot in plots)
    bottoms = [box["y"] + box["height"] for plot in plots if (box := plot.bounding_box())]
    assert max(bottoms) <= 900


@pytest.mark.parametrize(("width", "height"), [(390, 844), (800, 900), (1400, 900), (1920, 1080)])
def test_the_answer_stands_above_everything_at_any_width(shown: Opened, width: int, height: int) -> None:
    shown.page.set_viewport_size({"width": width, "height": height})
    boxes = [shown.page.locator(what).first.bounding_box() for what in ("#answer .answer", ".numbers", "#filters")]
    answer, numbers, filters = [box for box in boxes if box]
    assert answer["y"] < 300 and numbers["y"] + numbers["height"] <= height
    assert filters["y"] > numbers["y"] if width < 960 else filters["x"] < answer["x"]
    shown.until(f"document.documentElement.scrollWidth === {width}")


def test_keys_reach_the_answer_the_sections_and_the_legends(shown: Opened) -> None:
    at = "document.activeElement.id || document.activeElement.textContent.trim()"
    for link, section in (("Skip to the answer", "answer"), ("Skip the filters", "verdict")):
        skip = shown.page.locator(".skip", has_text=link)
        skip.focus()
        box = skip.bounding_box()
        assert box and box["x"] >= 0
        skip.press("Enter")
        assert shown.evaluate(at) == section
    entry = shown.page.locator(f"{THROUGHPUT} .key .entry", has_text="distributed_replicated").first
    for pressed in ("false", "true"):
        entry.focus()
        shown.page.keyboard.press("Enter")
        assert entry.get_attribute("aria-pressed") == pressed and shown.evaluate(at) == "distributed_replicated"
    entry.dblclick()
    assert traces_shown(shown) == ["distributed_replicated"]
    entry.dblclick()
    assert len(traces_shown(shown)) > 8


def traces_shown(shown: Opened) -> list[str]:
    """Names of the curves that the legend hides not."""
    curves = f"document.querySelector('{THROUGHPUT} .plot').data.filter((one) => one.mode === 'lines+markers')"
    names: list[str] = shown.evaluate(f"{curves}.filter((one) => one.visible !== 'legendonly').map((one) => one.name)")
    return names


def test_every_control_has_a_name(shown: Opened) -> None:
    nameless = """[...document.querySelectorAll("button, select, input, a, summary, [tabindex='0']")].filter((one) =>
      one.checkVisibility() && !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).length"""
    assert shown.evaluate(nameless) == 0


def test_intervals_stand_side_by_side_and_small_changes_look_small(shown: Opened) -> None:
    plot = "document.querySelector('{} .plot')"
    curves = f"{plot.format(THROUGHPUT)}.data.filter((one) => one.error_y)"
    first = shown.evaluate(f"{curves}.map((one) => one.x[0]).filter((x) => x < 2)")
    assert len(set(first)) == len(first) > 8 and 0.8 < min(first) < 1 < max(first) < 1.2
    low, high = shown.evaluate(f"{plot.format('#history figure:not([hidden])')}._fullLayout.yaxis.range")
    assert high - low > 0.2 * 1190
    assert shown.evaluate(f"{plot.format('#steps figure:not([hidden])')}._fullLayout.yaxis.range[0]") == 0


def test_the_answer_and_the_figures_follow_the_filters(shown: Opened) -> None:
    answer = shown.page.locator("#answer .answers:not([hidden])")
    assert "inception3" in answer.locator(".answer").inner_text()
    uncheck(shown, "backend", "horovod")
    assert answer.locator(".partly").is_visible()
    uncheck(shown, "model", "inception3")
    assert "resnet50" in answer.locator(".answer").inner_text()
    title = shown.page.locator("#throughput figure:not([hidden]) figcaption strong").inner_text()
    assert title.endswith("resnet50, synthetic data") and shown.page.locator("#history .empty").is_visible()


def test_scales_are_switched_and_every_view_has_an_address(shown: Opened) -> None:
    layout = f"document.querySelector('{THROUGHPUT} .plot')._fullLayout"
    title = f"{layout}.yaxis.title.text"
    assert shown.evaluate(title) == "img/s (log)" and shown.evaluate(f"{layout}.xaxis.title.text") == "workers (log)"
    menu = shown.page.locator(f"{THROUGHPUT} [data-scale]")
    menu.select_option("worker")
    shown.wait()
    assert shown.evaluate(title) == "img/s per worker" and shown.evaluate(f"{layout}.yaxis.range[0]") == 0
    shown.page.locator("#throughput select[data-chooser]").select_option("throughput-resnet50-synthetic")
    address = shown.evaluate("location.hash")
    shown.go("")
    assert shown.evaluate(title) == "img/s (log)"
    shown.go(address)
    drawn = shown.page.locator("#throughput figure:not([hidden])")
    assert drawn.get_attribute("data-figure") == "throughput-resnet50-synthetic"
    assert drawn.locator("[data-scale]").input_value() == "worker"
    menu = shown.page.locator("#throughput figure:not([hidden]) [data-scale]")
    menu.select_option("linear")
    shown.wait()
    linear = shown.evaluate("document.querySelector('#throughput figure:not([hidden]) .plot')._fullLayout.xaxis")
    assert (linear["type"], linear["dtick"]) == ("linear", 20)


def test_what_is_filtered_and_hidden_and_how_a_table_is_sorted_is_in_the_address(
    shown: Opened, show: Open, report: Path
) -> None:
    uncheck(shown, "system", "alps:gpu")
    uncheck(shown, "origin", "published")
    shown.page.locator(f"{THROUGHPUT} .key .entry", has_text="distributed_replicated").click()
    drawn = f"document.querySelector('{THROUGHPUT} .plot').data"
    hidden = f"{drawn}.filter((one) => one.visible === 'legendonly').map((one) => one.name)"
    shown.until(f"{hidden}.length")

    def ordered(page: Opened) -> list[float]:
        return [float(cell.replace(",", "")) for cell in cells(page, "ps-search", "img/s")]

    heading = shown.page.locator("[data-table=ps-search] th", has_text="img/s").first
    heading.locator("button").click()
    assert ordered(shown) == sorted(ordered(shown)) and heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    shown.page.locator("nav a", has_text="History").click()  # which leads there, and leaves the address as it is
    address = shown.evaluate("location.hash")
    other = show(report, address, viewport={"width": 600, "height": 900})
    for page in (shown, other):
        assert page.evaluate(hidden) == ["distributed_replicated"]
        assert ordered(page) == sorted(ordered(page), reverse=True)
    assert traces(other) == traces(shown)
    assert other.page.locator("#count").inner_text() == shown.page.locator("#count").inner_text()
    own = other.page.locator(f"{THROUGHPUT} .key .entry", has_text="distributed_replicated")
    assert own.get_attribute("aria-pressed") == "false"
    own.click()
    assert other.evaluate(hidden) == [] and "hide." not in other.evaluate("location.hash")
    other.page.locator("#filters summary").click()
    assert not other.page.locator("input[name=origin][value=published]").is_checked()
    other.page.locator("#reset").click()
    assert "sort.ps-search=-" in other.evaluate("location.hash")  # it resets the filters alone


def test_what_got_slower_this_year_is_two_clicks_away(shown: Opened) -> None:
    shown.page.locator("nav a", has_text="Slowdowns").click()
    shown.page.locator("#slower a", has_text="pytorch").first.click()
    shown.wait()
    figure = shown.page.locator("#history figure:not([hidden])")
    assert figure.locator(".main-svg").count() and "-6." in figure.locator(".annotation-text").first.text_content()
    assert "show.history=" in shown.evaluate("location.hash")


def pointed_at(shown: Opened) -> tuple[Any, list[float]]:
    """Point at the eighth point of a curve that stands alone: what the page tells of it then, and where it is."""
    shown.go("#backend=distributed_replicated&system=daint:gpu")
    told = shown.page.locator(f"{THROUGHPUT} .hoverlayer .hovertext")
    plot = shown.page.locator(f"{THROUGHPUT} .plot")
    plot.scroll_into_view_if_needed()
    place: list[float] = shown.evaluate(
        f"""(() => {{
          const plot = document.querySelector("{THROUGHPUT} .plot"), layout = plot._fullLayout;
          const trace = plot.data.find((one) => one.name === "distributed_replicated");
          const box = plot.getBoundingClientRect();
          return [box.x + layout.xaxis._offset + layout.xaxis.d2p(trace.x[7]),
                  box.y + layout.yaxis._offset + layout.yaxis.d2p(trace.y[7])];
        }})()"""
    )
    shown.page.mouse.move(*place)
    told.wait_for()
    return told, place


def test_a_click_on_a_point_leads_to_its_record(shown: Opened) -> None:
    _, place = pointed_at(shown)
    shown.page.mouse.click(*place)
    link = shown.page.locator(f"{THROUGHPUT} .pinned a")
    assert Path(link.inner_text().removeprefix("Record: ")).is_file()
    assert str(link.get_attribute("href")).startswith("file:///")


def test_light_and_dark_follow_the_system_and_the_button(shown: Opened) -> None:
    light, dark = "rgb(255, 255, 255) and #ffffff", "rgb(23, 26, 31) and #171a1f"
    background = "getComputedStyle(document.documentElement).backgroundColor"
    paper = "document.querySelector('.plot')._fullLayout.paper_bgcolor"

    def becomes(colours: str) -> None:
        shown.until(f"`${{{background}}} and ${{{paper}}}` === '{colours}'")

    becomes(light)
    shown.page.emulate_media(color_scheme="dark")
    becomes(dark)
    shown.page.locator("#theme").click()
    becomes(light)


def test_pointing_at_a_point_tells_where_it_comes_from(shown: Opened, records: Path) -> None:
    told, _ = pointed_at(shown)
    text = told.evaluate("(one) => [...one.querySelectorAll('tspan.line')].map((line) => line.textContent).join(' | ')")
    wanted = ("distributed_replicated", "128 workers on 128 nodes, daint:gpu", "95 % CI", "best of 4 configurations")
    assert all(part in text for part in (*wanted, "5 repeats in 1 job", "TensorFlow 2.16.1", "grpc on ipogif0")), text
    assert str(records) in text.replace(" | ", "")


RESULTS = {  # of each table, what a reader wants first
    "verdict": "ratio of img/s",
    "ps-search": "img/s",
    "io-overheads": "overhead",
    "points": "img/s",
    "without-number": "reason",
    "runs": "img/s",
}


def test_tables_show_their_result_without_scrolling_and_keep_their_first_column(shown: Opened) -> None:
    for width, (table, result) in product((380, 1280, 1920), RESULTS.items()):
        shown.page.set_viewport_size({"width": width, "height": 900})
        details = shown.page.locator(f"[data-table={table}]")
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        details.locator(".scroll").evaluate("(scroll) => scroll.scrollTo(0, 0)")
        box, heading = (
            found.bounding_box()
            for found in (details.locator(".scroll"), details.locator("th:visible", has_text=result).first)
        )
        assert box and heading
        # Of a heading that is flush right, the arrow of sorting may be hidden.
        assert heading["x"] + heading["width"] - 20 <= box["x"] + box["width"], f"{result} of {table} at {width} px"
        details.locator(".scroll").evaluate("(scroll) => scroll.scrollTo(10000, 0)")
        first = details.locator("tbody td:first-child").first.bounding_box()
        assert first and first["x"] - box["x"] < 5, f"the first column of {table} has moved away"
        heights = details.locator("tbody tr").evaluate_all("(rows) => rows.map((row) => row.offsetHeight)")
        assert max(heights) < 150, f"a row of {table} is {max(heights)} px high"
        shown.until(f"document.documentElement.scrollWidth === {width}")  # figures follow a moment after the window
        assert shown.evaluate("document.documentElement.scrollWidth") == width


def test_columns_that_are_the_same_in_all_rows_are_said_once_and_follow_the_filters(shown: Opened) -> None:
    common = shown.page.locator("[data-table=ps-search] .common")
    assert "system" not in common.inner_text().replace("system daint:gpu", "") and common.is_visible()
    headings = shown.page.locator("[data-table=ps-search] th:visible")
    assert "model" in [heading.strip() for heading in headings.all_inner_texts()]
    uncheck(shown, "model", "resnet50")
    assert "model inception3" in common.inner_text()
    assert "model" not in [heading.strip() for heading in headings.all_inner_texts()]


def test_a_long_cell_is_cut_until_it_is_clicked_and_shown_whole_on_hover(shown: Opened) -> None:
    cell = shown.page.locator("[data-table=without-number] td.long").filter(has_text="slurmstepd").first
    whole = cell.get_attribute("title") or ""
    assert whole.endswith("DUE TO TIME LIMIT ***")
    hidden = "(cell) => cell.firstChild.scrollHeight - cell.firstChild.clientHeight"
    assert cell.evaluate(hidden) > 0
    cell.click()
    assert cell.evaluate(hidden) == 0


def test_a_table_is_downloaded_as_csv_markdown_and_latex_as_the_filters_leave_it(shown: Opened, tmp_path: Path) -> None:
    uncheck(shown, "backend", "distributed_replicated")
    texts = {}
    for format_ in ("csv", "md", "tex"):
        with shown.page.expect_download() as download:
            shown.page.locator(f"[data-table=ps-search] [data-save={format_}]").click()
        assert download.value.suggested_filename == f"ps-search.{format_}"
        download.value.save_as(tmp_path / format_)
        texts[format_] = (tmp_path / format_).read_text()
    saved = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert {row["backend"] for row in saved} == {"parameter_server"} and len(saved) == rows(shown, "ps-search")
    assert {"system", "model", "img/s", "of the best"} <= set(saved[0]) and 0 < float(saved[1]["of the best"]) < 1
    assert texts["md"].startswith("All rows: ") and texts["md"].count("\n| parameter\\_server | ") == len(saved)
    assert texts["tex"].count("parameter\\_server & ") == len(saved) and texts["tex"].endswith("\\end{tabular}\n")


@pytest.mark.slow
def test_long_tables_say_how_much_of_them_is_shown_and_show_more(shown: Opened) -> None:
    more = shown.page.locator("[data-table=points] .more")
    assert rows(shown, "points") == 200 and "(200 of" in more.inner_text()
    more.click()
    assert rows(shown, "points") > 200 and more.is_hidden()


@pytest.mark.parametrize(
    ("format_", "starts"), [pytest.param("png", b"\x89PNG", marks=pytest.mark.slow), ("svg", b"<svg")]
)
def test_a_figure_is_downloaded_as_a_file(shown: Opened, tmp_path: Path, format_: str, starts: bytes) -> None:
    with shown.page.expect_download() as download:
        shown.page.locator(f"{THROUGHPUT} [data-export={format_}]").click()
    download.value.save_as(tmp_path / "figure")
    content = (tmp_path / "figure").read_bytes()
    assert download.value.suggested_filename == f"throughput-inception3-synthetic.{format_}"
    assert content.startswith(starts) and len(content) > 10_000


@pytest.mark.slow
def test_print_shows_every_figure_in_light_colours_without_controls(show: Open, report: Path, tmp_path: Path) -> None:
    shown = show(report, color_scheme="dark")
    shown.page.emulate_media(media="print")
    for control in ("aside", "#theme", ".export", ".chips", ".chooser"):
        assert shown.page.locator(control).first.is_hidden(), control
    for model in ("inception3", "resnet50"):
        figure = shown.page.locator(f"#figure-throughput-{model}-synthetic")
        assert figure.is_visible() and figure.locator(".main-svg").count()
        assert figure.locator(".plot").evaluate("(plot) => plot._fullLayout.paper_bgcolor") == "#ffffff"
    assert rows(shown, "points") > 200
    headings = [name for name in shown.page.locator("[data-table=points] th").all_inner_texts() if name]
    assert {"workers", "img/s"} <= set(headings), headings
    shown.page.emulate_media(media="screen")
    shown.page.locator("[data-table=points] tbody tr").nth(200).wait_for(state="detached")
    shown.wait()
    assert shown.page.locator("aside").is_visible()
    shown.page.pdf(path=tmp_path / "report.pdf")
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) > 5
    # A turn of the paper would leave a page half empty.
    assert len(set(re.findall(rb"/MediaBox\s*(\[[^]]*\])", pdf))) == 1


def test_texts_of_records_stay_texts(show: Open, tmp_path: Path) -> None:
    odd = [
        made.record("pytorch", 4, status="failed", reason=HOSTILE, site=HOSTILE),
        made.record("pytorch", 1, site=HOSTILE, packages={"torch": HOSTILE}, hosts=[HOSTILE]),
        made.record("pytorch", 2, (190.0, 191.0), site=HOSTILE, packages={"torch": HOSTILE}, hosts=["a", HOSTILE]),
        made.record("pytorch", 3, (270.0, 271.0), site=HOSTILE, packages={"torch": HOSTILE}, hosts=["a", HOSTILE]),
    ]
    folder = made.save(tmp_path / "records", odd)
    page = assemble.page(results.load([folder]), [HOSTILE], "now", title=HOSTILE)
    shown = show(write(page, tmp_path / "report.html"))
    assert shown.evaluate("document.title") == HOSTILE
    assert shown.page.locator("img, main b").count() == 0
    assert cells(shown, "without-number", "reason") == [HOSTILE]
    assert HOSTILE in shown.page.locator(".facts").inner_text()
    assert HOSTILE in shown.page.locator("#model figure:not([hidden]) strong").inner_text()


def test_a_report_of_failed_runs_only_says_so_and_why(show: Open, tmp_path: Path) -> None:
    folder = made.save(tmp_path / "records", sample.failures())
    page = assemble.page(results.load([folder]), [str(folder)], "now")
    shown = show(write(page, tmp_path / "report.html"))
    assert "None of the 4 runs has a number" in shown.page.locator("main").inner_text()
    assert "rank 3 on nid00003 exited with 137" in " ".join(cells(shown, "without-number", "reason"))
    assert shown.page.locator("figure").count() == 0
