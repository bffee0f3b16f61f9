"""Experiments by name, for those of the package, or by path, for the user's own files."""

from functools import cache
from pathlib import Path

from dgmark.errors import SettingsError
from dgmark_lab.experiments.spec import Experiment, read_experiment

FOLDER = Path(__file__).parent / "paper"


@cache
def experiment_names() -> tuple[str, ...]:
    """List the names of the paper's experiments, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_experiment(name_or_path: str) -> Experiment:
    """Load an experiment by its name, or from a file ending in .toml.

    Raises:
        SettingsError: no experiment has this name, or the file is not a valid experiment.
    """
    if name_or_path in experiment_names():
        return read_experiment(FOLDER / f"{name_or_path}.toml")
    if name_or_path.endswith(".toml"):
        return read_experiment(Path(name_or_path))
    raise SettingsError(
        f"there is no experiment {name_or_path!r}: give a file ending in .toml, or one of "
        + ", ".join(experiment_names())
    )
