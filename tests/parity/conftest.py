from pathlib import Path

import pytest


@pytest.fixture
def environment():
    return lambda name: Path({"pytorch": "/tmp/t/pt/bin/python", "parameter_server": "/tmp/t/tf/bin/python"}[name])
