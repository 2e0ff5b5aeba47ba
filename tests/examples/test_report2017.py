"""The notebook of the report of 2017 draws the published tables, which are read here by other means."""

import base64
import csv
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from tests.conftest import ROOT

CELLS = json.loads((ROOT / "examples" / "report2017.ipynb").read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
DAINT, P2, P28 = "Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80"
K80 = [(P2, "synthetic"), (P28, "synthetic"), (f"{P28} (Google)", "synthetic")]
CURVES = {5: (8, [(DAINT, "synthetic"), ("NVIDIA DGX-1 P100", "synthetic")]), 6: (8, K80), 7: (64, K80)} | {
    number: (128, [(system, "synthetic"), (system, "real")]) for number, system in {8: DAINT, 9: P2, 10: P28}.items()
}


def test_its_figures_show_the_published_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published: dict[tuple[str, str], dict[int, float]] = {}  # img/s by number of devices
    with (ROOT / "results" / "reference" / "published_img_per_s.csv").open() as file:
        for row in csv.DictReader(file):
            if row["model"] == "inception3" and row["source"].startswith(("CSCS internship", "Google")):
                published.setdefault((row["system"], row["data"]), {})[int(row["devices"])] = float(row["img_per_s"])
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    names: dict[str, Any] = {}
    for cell in CODE:
        exec("".join(cell["source"]), names)
    figures = names["figures"]
    for number, (most, curves) in CURVES.items():
        (*drawn, ideal), efficiency = (axes.lines for axes in figures[number].axes)
        for line, share, key in zip(drawn, efficiency, curves, strict=True):
            table = {devices: rate for devices, rate in published[key].items() if devices <= most}
            assert dict(line.get_xydata()) == table
            assert dict(share.get_xydata()) == pytest.approx({n: 100 * table[n] / table[1] / n for n in table})
        assert ideal.get_ydata()[-1] == most * min(published[key][1] for key in curves)
    for bars, system in zip(figures[11].axes[0].containers, (DAINT, P2, P28), strict=True):
        real, synthetic = published[system, "real"], published[system, "synthetic"]
        lost = [100 * (synthetic[n] - real[n]) / synthetic[n] for n in sorted(synthetic)]
        assert [bar.get_height() for bar in bars] == pytest.approx(lost)
    plt.close("all")


def test_it_is_saved_with_a_small_picture_of_each_figure() -> None:
    outputs = [output for cell in CODE for output in cell["outputs"]]
    pictures = [base64.b64decode(output["data"]["image/png"]) for output in outputs]
    assert len(pictures) == 7 and all(1e3 < len(picture) < 1e5 for picture in pictures)
