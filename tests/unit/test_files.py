"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from harness.files import write_atomically


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_file_may_be_read_by_whom_the_umask_lets_and_keeps_what_somebody_has_given_it(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        new, old = tmp_path / "new", tmp_path / "old"
        old.touch(0o640)
        old.chmod(0o640)
        for file in (new, old):
            assert write_atomically(file, "text").read_text() == "text"
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in (new, old)] == [mode, 0o640]
    assert {file.name for file in tmp_path.iterdir()} == {"new", "old"}
