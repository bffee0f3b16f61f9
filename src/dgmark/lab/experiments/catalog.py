"""The experiments that come with the package, by name; and those in a file of one's own."""

from functools import cache
from pathlib import Path

from dgmark.errors import SettingsError
from dgmark.lab.experiments.spec import Experiment, read_experiment

FOLDER = Path(__file__).parent / "paper"


@cache
def experiment_names() -> tuple[str, ...]:
    """Names of the experiments of the paper, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_experiment(name_or_path: str) -> Experiment:
    """An experiment by its name, or from a file ending in .toml.

    Raises:
        SettingsError: no such experiment, or a file that is none.
    """
    if name_or_path in experiment_names():
        return read_experiment(FOLDER / f"{name_or_path}.toml")
    if name_or_path.endswith(".toml"):
        return read_experiment(Path(name_or_path))
    raise SettingsError(
        f"there is no experiment {name_or_path!r}: give a file ending in .toml, or one of "
        + ", ".join(experiment_names())
    )
