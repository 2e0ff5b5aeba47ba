"""Everything that is known, measured and published, as DataFrames."""

from harness.results.rows import COLUMNS
from harness.results.sources import load

__all__ = ["COLUMNS", "load"]
