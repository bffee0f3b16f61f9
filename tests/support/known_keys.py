"""Keys that are the same in every run: their secrets are hashes of a name, so they protect nothing."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import RuleFigures, WeightFigures
from dgmark.watermark.bigram import DISTANCES, BigramSpec, matching_pairs, pair_key, pair_words, pairs_of
from dgmark.watermark.key import ModelLike, WatermarkKey
from dgmark.watermark.position import tables_of
from dgmark.watermark.rules import spec_of
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import WordClasses, class_ids

Figures = TypeVar("Figures", bound=RuleFigures)


@cache
def builtin_tokenizer() -> Tokenizer:
    """The built-in model's tokenizer, loaded once."""
    return load_tokenizer()


def known_spec(*, rule: str | None = None, **options: Any) -> Any:
    """A spec bound to the built-in model: by default of rule "bigram" with sub-keys, else of rule "position"."""
    rule = rule or ("bigram" if "subkeys" in options else "position")
    distances = dict(zip(("nearest", "farthest"), DISTANCES, strict=True)) if rule == "bigram" else {}
    bound: dict[str, Any] = {
        "table_size": find_checkpoint(BUILTIN).vocab_size,
        "tokenizer": BUILTIN,
        "tokenizer_fingerprint": builtin_tokenizer().fingerprint,
    }
    if options.get("tokens") == "words":
        bound["word_classes"] = WordClasses.of(builtin_tokenizer()).fingerprint
    return spec_of({"rule": rule, **bound, **distances, **options})


def known_key(name: str, **options: Any) -> WatermarkKey:
    """The key called `name`, bound to the built-in model; see `known_spec`."""
    spec = known_spec(**options)
    return WatermarkKey(spec, f"test-{name}", _secret_of(name) if spec.keyed else None)


def bound_key(name: str, model: str | ModelLike, **options: Any) -> WatermarkKey:
    """What `WatermarkKey.generate` makes for a model, but with the secret of this name, and by default no sub-keys.

    Texts marked with a random secret or sub-key differ from run to run, and so may what a test finds in them.
    """
    made = WatermarkKey.generate(model, **{"subkeys": 1, **options})
    return WatermarkKey(made.spec, f"test-{name}", _secret_of(name) if made.spec.keyed else None)


def key_file_of(key: WatermarkKey) -> Any:
    """A fixture for the tests of a module: the file of a key, alone in its folder."""

    @pytest.fixture(scope="module")
    def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
        key.save(path := tmp_path_factory.mktemp("keys") / "key.json")
        return path

    return saved


def matches(key: WatermarkKey, token: int, position: int) -> bool:
    """Whether the token's group is the residue that its position wants, from the key's own tables."""
    rotation = tables_of(key).spec.rotation
    segment = position // rotation if rotation else 0
    return bool(tables_of(key).table(segment)[token] == tables_of(key).code[position % tables_of(key).spec.period])


def figures_of(found: Detection, kind: type[Figures]) -> Figures:
    """The figures of a detection by a rule that has such figures."""
    assert isinstance(found.figures, kind)
    return found.figures


def weight_figures(found: Detection) -> WeightFigures:
    """The figures of the weighted test in a detection that has them."""
    assert found.figures.weights is not None
    return found.figures.weights


def net_matches(key: WatermarkKey | None, ids: list[int]) -> int:
    """What matches in a text less what does not: tokens, or distinct pairs; -1 where no token stands."""
    if key is None:
        return 0
    if key.spec.rule == "position":
        return sum(1 if matches(key, token, place) else -1 for place, token in enumerate(ids) if token >= 0)
    return int((matching_pairs(np.unique(_words(key, ids)), pair_key(key), key.number or 0) * 2 - 1).sum())


@cache
def sign_of(key: WatermarkKey, left: int, right: int) -> int:
    """1 if a pair matches under a key of rule "bigram", else -1."""
    word = pair_words(class_ids(key.spec, np.array([left])), class_ids(key.spec, np.array([right])))
    return 1 if matching_pairs(word, pair_key(key), key.number or 0)[0] else -1


def _words(key: WatermarkKey, ids: list[int]) -> Any:
    places = np.flatnonzero(np.array(ids) >= 0)
    spec = spec_as(BigramSpec, key)
    read = class_ids(spec, np.array(ids)[places])
    left, right = pairs_of(places, spec.nearest, spec.farthest)
    return pair_words(read[left], read[right])


def _secret_of(name: str) -> bytes:
    return hashlib.sha256(f"dgmark test key {name}".encode()).digest()
