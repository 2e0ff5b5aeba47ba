"""Everything that is known, measured and published."""

from harness.results.result import Result
from harness.results.sources import load

__all__ = ["Result", "load"]
