"""Errors in a data set, in one line each. Standard library only; Python 3.9."""

from __future__ import annotations


class DataError(ValueError):
    """The data set cannot be used. The message is one line and names what to mend."""


class BadImage(DataError):
    """One image cannot be read or decoded. Carries ``path`` and ``reason`` across process borders.

    ``path`` is a file, or the place of a record: ``FOLDER/train-00003-of-00016 at byte 81920 (n01440764_10026.JPEG)``.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)  # both become args, which is what pickle hands back to this constructor
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"bad image {self.path}: {self.reason}"
