"""Classes of words: which tokens share one, tables that never change, and keys that name them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from dgmark import WatermarkKey
from dgmark.checkpoint.folder import NARRATOR
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import KeyFileFormat, ModelNotFound, SettingsError, TokenizerMismatch
from dgmark.watermark.bigram import WORDS_PRF, BigramSpec, hash_key, matching_pairs, pair_words
from dgmark.watermark.hashes import SipHashKey
from dgmark.watermark.word_classes import WordClasses, class_ids, class_table, folded_word
from support.cased_words import CLASSES, cased_tokenizer, words_key
from support.cases import cases
from support.known_keys import builtin_tokenizer, known_key


@pytest.mark.parametrize("alike", cases(__file__, "folded"))
def test_tokens_that_read_as_the_same_word_are_folded_alike(alike: list[str]) -> None:
    assert len(set(map(folded_word, alike))) == 1
    assert folded_word(alike[0]) is not None


@pytest.mark.parametrize(
    "alone", ["", " ", "\n\n", ".", " .", "\u201c", '"', "\u2014", "\ufffd", "a\ufffd", "\U0001f642"]
)
def test_marks_white_space_and_parts_of_characters_stand_for_themselves(alone: str) -> None:
    assert folded_word(alone) is None


def test_different_words_are_not_folded_alike() -> None:
    different = ["cafe", "caf\u00e9", "\uff41", "a", "walk", "walks", "dont", "don't", "x.", "x", "\u03b1"]
    assert len(set(map(folded_word, different))) == len(different)


def test_the_folding_of_every_character_is_held_by_a_golden_hash() -> None:
    """It must be the same under any version of Python, so of characters that later versions of Unicode add, too."""
    digest = hashlib.sha256()
    for code in range(0x30000):  # above, Unicode 3.2 has no letter
        if folded := folded_word(chr(code)):
            digest.update(f"{code:x} {folded}\n".encode("utf-8", "surrogatepass"))
    assert digest.hexdigest()[:16] == "a890b2661a5dc1d0"


@pytest.mark.parametrize(
    ("name", "classes", "fingerprint"),
    [("storyteller", 6992, "ce90c2b766efa052"), (NARRATOR, 33348, "13daf4b6cc24bf53")],
)
def test_the_tables_of_the_built_in_models_are_golden(name: str, classes: int, fingerprint: str) -> None:
    found = WordClasses.of(load_tokenizer(name))
    assert found.fingerprint == fingerprint
    assert len(np.unique(found.table)) == classes
    assert (found.table <= np.arange(len(found.table))).all()
    assert np.array_equal(found.table[found.table], found.table)


def test_the_class_of_an_id_is_the_lowest_id_that_reads_alike() -> None:
    key = words_key()
    assert class_ids(key.spec, np.arange(len(CLASSES))).tolist() == CLASSES
    exact = known_key("pairs", rule="bigram")
    assert class_table(exact.spec) is None
    assert class_ids(exact.spec, np.arange(9)).tolist() == [*range(9)]


def test_bits_of_pairs_of_classes_are_held_by_golden_values() -> None:
    key, left = hash_key(bytes(range(32)), 1, 4, WORDS_PRF), np.arange(20)
    assert SipHashKey(7770007891662240002, 5678132920183009243) == key
    bits = "".join("01"[bit] for bit in matching_pairs(pair_words(left, left[::-1]), key).astype(int))
    assert bits == "10000000111110101001"


def test_a_key_of_words_is_named_as_one_and_read_back(tmp_path: Path) -> None:
    made = WatermarkKey.generate(tokens="words", subkeys=16)
    made.save(path := tmp_path / "key.json")
    saved = json.loads(path.read_text())
    assert (saved["prf"], saved["tokens"], saved["word_classes"]) == (WORDS_PRF, "words", "ce90c2b766efa052")
    assert WatermarkKey.load(path) == made
    path.write_text(json.dumps({**saved, "word_classes": "0" * 16}))
    with pytest.raises(KeyFileFormat, match="do not have the fingerprint that it states"):
        WatermarkKey.load(path)


def test_a_key_of_exact_tokens_is_written_as_before_there_were_classes(tmp_path: Path) -> None:
    made = WatermarkKey.generate(tokens="exact")
    made.save(path := tmp_path / "key.json")
    saved = json.loads(path.read_text())
    assert saved["prf"] == "siphash24-pairs-v1"
    assert not {"tokens", "word_classes"} & saved.keys()
    assert WatermarkKey.load(path) == made


def test_another_table_of_classes_is_refused() -> None:
    wrong = words_key(word_classes="0" * 16)
    with pytest.raises(TokenizerMismatch, match=r"classes of words 0{16}, and those of the tokenizer 'cased words'"):
        wrong.check_tokenizer(cased_tokenizer())
    named = words_key(word_classes="0" * 16, tokenizer="storyteller")
    with pytest.raises(TokenizerMismatch, match="are ce90c2b766efa052"):
        class_table(named.spec)
    with pytest.raises(ModelNotFound, match=r"call key\.check_tokenizer"):
        class_table(words_key(word_classes="0" * 16, tokenizer="no such model").spec)


@pytest.mark.parametrize(("tokens", "word_classes"), [("exact", "0" * 16), ("words", None)])
def test_words_and_their_hash_go_together(tokens: str, word_classes: str | None) -> None:
    with pytest.raises(SettingsError, match="or neither"):
        words_key(tokens=tokens, word_classes=word_classes)


def test_a_spec_of_words_is_bound_to_the_classes_of_its_tokenizer() -> None:
    spec = BigramSpec.new(builtin_tokenizer(), 8192, tokens="words")
    assert spec.word_classes == WordClasses.of(builtin_tokenizer()).fingerprint
    assert BigramSpec.new(builtin_tokenizer(), 8192, tokens="exact").word_classes is None
