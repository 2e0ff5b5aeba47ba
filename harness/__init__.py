"""harness: a comparative benchmark suite for distributed training on HPC clusters.

This module imports nothing, because workers load it inside every backend's environment (Python 3.9 and later).
"""

__version__ = "0.1.0"
