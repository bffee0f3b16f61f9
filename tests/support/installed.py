"""Packages with entry points, as pip would install them."""

from pathlib import Path


def install(folder: Path, name: str, group: str, points: str) -> Path:
    """Write what pip writes about a package of one group of entry points; the path of these."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{points}")
    return about / "entry_points.txt"
