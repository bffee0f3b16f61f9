"""Experiments on the toy model: loaders that need no weights, and stores small enough to look at."""

from pathlib import Path
from typing import Any

from dgmark.models.denoiser import CacheMode, Session, open_session
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines import BASELINES
from dgmark_lab.experiments.cells import StoredRun, keys_of
from dgmark_lab.experiments.plan import RunOptions
from dgmark_lab.experiments.report import section_of
from dgmark_lab.experiments.run import run_experiment
from dgmark_lab.experiments.spec import Experiment
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import Section
from dgmark_lab.rule_keys import rule_key
from support.known_keys import bound_key


class CachingToy(ToyDenoiser):
    """A toy that takes any cache setting, and caches nothing."""

    def session(self, cache: CacheMode) -> Session:  # noqa: ARG002
        """Whole forwards."""
        return open_session(ToyDenoiser(words=self.words, end_ids=self.end_ids))


# published rules that need no model to detect, and take texts of any length
ANY_LENGTH = [name for name in BASELINES if name != "replaymark"]
TOY = CachingToy(words=400, end_ids=())


def toy_baseline(name: str, key: WatermarkKey) -> WatermarkKey:
    """The key of a baseline with its defaults; the toy has no embeddings that Tango could project."""
    return rule_key(name, key, **({"colours": "hash"} if name == "tango" else {}))


def load_toy(name: str, **_: Any) -> tuple[ToyDenoiser, str]:
    """The toy and a hash, whatever the name."""
    return TOY, f"hash of {name}"


def run_toy(
    experiment: Experiment, root: Path, told: list[tuple[str, int, int]] | None = None, **options: Any
) -> Store:
    """Run an experiment with the toy and 8 tokens a text. The key is the same every time, as the texts depend on it."""
    store = Store(root)
    own = root / "keys" / f"{TOY.tokenizer.fingerprint}-{TOY.vocab_size}.json"
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        bound_key("toy", TOY, code_length=0).save(own)
    given = {"limit": 2, "length": 8, "judge": "none", **options}

    def tell(what: str, done: int, of: int) -> None:
        if told is not None:
            told.append((what, done, of))

    run_experiment(experiment, store, RunOptions(**given), tell, load_toy)
    return store


def report_toy(experiment: Experiment, store: Store) -> tuple[StoredRun, Section]:
    """Such a run, and what its report shows."""
    few = experiment.model_copy(update={"null_keys": 2})
    tokenizers = {TOY.tokenizer.fingerprint: TOY.tokenizer}
    run = StoredRun.read(few, store, "builtin", keys_of(store, None), tokenizers)
    return run, section_of(run)


SMALL = Path(__file__).with_name("toy_experiment.toml").read_text(encoding="utf-8")
