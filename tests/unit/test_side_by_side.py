"""How tests are run: none is left out."""

import itertools
import re

from tests.conftest import ROOT


def test_ci_lets_nothing_be_skipped_and_begins_nothing_too_late() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^export PYTEST_ADDOPTS=.*--no-skip.*--until", script, re.MULTILINE)


def test_every_test_is_run_by_one_line_of_the_makefile() -> None:
    """Whatever marks it has; those that are exhaustive only by ``make test-all``."""
    makefile = (ROOT / "Makefile").read_text()
    choice = re.findall(r"^CHOICE +:= (.+)$", makefile, re.MULTILINE)[0]
    lines = re.findall(r"^\t\$\((?:SIDE_BY_SIDE|ONE_BY_ONE)\) -m \"?([^\"\n]+)", makefile, re.MULTILINE)
    selections = [line.replace("$(CHOICE)", choice) for line in lines]
    marks = ("slow", "alone", "clock", "exhaustive")
    for chosen in itertools.product([True, False], repeat=len(marks)):
        having = dict(zip(marks, chosen, strict=True))
        running = [line for line in selections if eval(line, {}, having)]
        assert len(running) == 1, having
