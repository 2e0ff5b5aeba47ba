"""An example of an exporter that comes in a package of its own: the newest img/s of each backend for Prometheus."""

from __future__ import annotations

from typing import IO

from harness.export import Export


def write(export: Export, stream: IO[bytes]) -> None:
    """Write a line for each backend and number of workers; later results come later in ``export.results``."""
    newest = {(result.backend, result.workers): result for result in export.results}
    for result in newest.values():
        labels = f'backend="{result.backend}",workers="{result.workers}"'
        stream.write(f"harness_img_per_s{{{labels}}} {result.img_per_s}\n".encode())
