"""Colours that people with any colour vision tell apart: those of Okabe and Ito (2008), adjusted to the background.

As published they are made for areas; for lines and text the light theme darkens those that are too pale on white, and
the dark theme lightens those that are too dark on black. Tests hold the contrasts of WCAG 2.2: 4.5:1 for text, 3:1 for
lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """``colours`` are for what has no order, ``shades`` for what grows, ``grey`` for what others published."""

    colours: tuple[str, ...]
    shades: tuple[str, ...]
    grey: str
    accent: str
    ink: str
    muted: str
    grid: str
    paper: str


LIGHT = Theme(
    colours=("#0072b2", "#c94f00", "#00875f", "#b3578c", "#2a8fd0", "#a97400", "#7a6a00", "#333333"),
    shades=("#9a8a00", "#6f9a1f", "#2b9a52", "#008f7f", "#007f9f", "#0065a8", "#3f45a0", "#3d1c73"),
    grey="#6b7280",
    accent="#c2185b",
    ink="#1a1d21",
    muted="#59606a",
    grid="#e4e7eb",
    paper="#ffffff",
)
DARK = Theme(
    colours=("#4a9fe8", "#ff8a45", "#2fc798", "#e79cc4", "#9ad8ff", "#e6a93a", "#e8dc4a", "#d7dade"),
    shades=("#f4e66a", "#b9dd6a", "#7ed28a", "#4cc7a8", "#4fb8d6", "#6aa5ee", "#9c96f0", "#c78be8"),
    grey="#a0a8b4",
    accent="#ff6f9f",
    ink="#e8eaed",
    muted="#a7aeb8",
    grid="#2e343c",
    paper="#171a1f",
)
