"""docs/answers.md: what it says is what the data say today, and it says where each figure is from."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from harness import results
from harness.errors import HarnessError, InvalidInput
from tests.conftest import ROOT, Harness
from tests.scripts import script
from tests.wording import Wording

answers = script("studies/published/answers.py")
PAGE = ROOT / "docs" / "answers.md"


@cache
def committed() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_committed_page_is_what_would_be_written_today() -> None:
    answers.main(["--check", str(PAGE)])


def test_a_page_with_another_figure_or_word_is_out_of_date() -> None:
    for old, new in (("15,000 img/s", "16,000 img/s"), ("Predicted", "Measured")):
        changed = committed().replace(old, new, 1)
        assert changed != committed()
        assert not answers.same(changed, committed())


def test_last_digits_may_differ_from_machine_to_machine() -> None:
    assert answers.same("9,330 img/s (8,940 – 9,870), 1.4 %", "9,340 img/s (8,950 – 9,870), 1.5 %")
    assert not answers.same("9,330 img/s, 1.4 %", "9,430 img/s, 1.4 %")
    assert not answers.same("9,330 img/s, 1.4 %", "9,330 img/s, 1.6 %")
    assert not answers.same("1.4 % with 8 PS", "1.4 % with 12 PS")


def test_every_note_is_used_and_every_mark_has_a_note() -> None:
    notes = re.findall(r"^\[\^(\d+)\]:", committed(), re.M)
    marks = re.findall(r"\[\^(\d+)\](?!:)", committed())
    assert notes == [str(number) for number in range(1, len(notes) + 1)]
    assert set(marks) == set(notes)


def test_a_note_gives_the_figures_of_its_sentence(harness: Harness) -> None:
    """An example of each kind: the prediction at 128 nodes, and the sentence of an explanation."""
    predicted = harness(
        *("predict", "--site", "daint", "--model", "inception3", "--backend", "parameter_server"),
        *("--nodes", "128", "--placement", "partitioned", "--json"),
    )
    (one,) = predicted.succeeded().json["predictions"]
    figures = " – ".join(f"{round(one[end], -2):,.0f}" for end in ("low", "high"))
    assert re.search(
        rf"^\| slices of 1 MiB\[\^\d+\] \| {round(one['img_per_s'], -2):,.0f} \({figures}, ", committed(), re.M
    )
    explained = harness(
        *("explain", "--site", "daint", "--model", "inception3", "--backend", "parameter_server"),
        *("--nodes", "128", "--ps", "116", "--json"),
    )
    assert f"- 128 nodes: {explained.succeeded().json['explanation'][0]}." in committed()


def test_what_is_measured_is_told_from_what_is_predicted() -> None:
    assert re.search(r"^Measured:$", committed(), re.M)
    assert re.search(r"^Predicted for inception3", committed(), re.M)
    wanted = (answers.DAINT, 128, "parameter_servers", "synthetic")
    (best,) = (run for run in results.load(["reference"]) if (run.system, run.workers, run.family, run.data) == wanted)
    assert f"| 128 | {best.rate:,.0f} (116 PS) |" in committed()


@pytest.mark.slow
def test_findings_of_experiments_are_told_with_the_command_that_gives_them(tmp_path: Path) -> None:
    finding = {"question": "Does it bind?", "answer": "cannot say", "because": "Two runs differ by 3 %."}
    (tmp_path / "analysis.json").write_text(
        json.dumps({"experiment": "links", "script": "links.py", "findings": [finding]})
    )
    answers.main([str(tmp_path), "-o", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("- Does it bind? **Cannot say.** Two runs differ"))
    number = re.findall(r"\[\^(\d+)\]", line)[0]
    assert f"[^{number}]: `.venv/bin/python studies/links/links.py {tmp_path}`" in text


def test_no_fewer_servers_are_enough_for_a_factor_of_the_largest_tensor() -> None:
    enough = answers.enough_for(2)
    fewer, most = (max(answers.held("greedy", ps)) for ps in (enough - 1, enough))
    assert most <= 2 * answers.LARGEST.bytes < fewer
    assert answers.share_of_kernels() > 0.9


def test_every_experiment_that_was_made_is_on_the_page_with_the_script_that_analyses_it() -> None:
    found = answers.analyses([])
    assert found.keys() == {"results/experiments/steady"}
    for folder, analysis in found.items():
        script = Path("studies", analysis.experiment, analysis.script)
        assert f"`.venv/bin/python {script} {folder}`" in committed()
        assert (ROOT / script).is_file()


def test_what_is_no_analysis_is_refused(tmp_path: Path, wording: Wording) -> None:
    with wording("nothing").raises(InvalidInput, HERE=tmp_path):
        answers.analyses([str(tmp_path)])
    (tmp_path / "analysis.json").write_text("[]")
    with wording("[]").raises(InvalidInput, HERE=tmp_path):
        answers.analyses([str(tmp_path)])


def test_what_the_measurements_do_not_bear_is_said() -> None:
    text = committed()
    assert "were in sight when the law was chosen: the last columns are *selected on*, not held out" in text
    assert re.search(r"goal of 5 % above 32 workers, fitted to the others, is \*\*missed\*\*", text)
    (xlarge,) = re.findall(
        r"^\| EC2 p2.xlarge K80 .*\| ([\d.]+) % \| \+[\d.]+ % \| 1 of 2 \| .*; ([\d.]+) % \|$", text, re.M
    )
    assert float(xlarge[0]) > 20 and float(xlarge[1]) < 1.2 * float(xlarge[0])  # two lines err hardly more there
    assert re.search(
        r"Cut tensors into slices\*\*, instead of the first line: 1\.\d\d × \(1\.\d\d – 1\.\d\d\) on 128", text
    )


def test_an_outdated_page_is_said_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(answers, "page", lambda *_: committed())
    (tmp_path / "old.md").write_text(committed().replace("Predicted", "Measured", 1))
    with pytest.raises(HarnessError) as refused:
        answers.main(["--check", str(tmp_path / "old.md")])
    wording("--check").answered(refused.value, FILE=tmp_path / "old.md", COMMAND=answers.COMMAND)
    assert refused.value.exit_code == 1
