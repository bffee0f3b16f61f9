"""Attacks that edit text: budgets are exact, the rest stays, the same dice give the same text."""

import unicodedata
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark import load_tokenizer
from dgmark.detection.normalise import normalise
from dgmark.errors import InputError, MissingExtra, NoTexts, SettingsError
from dgmark_lab.attacks import ATTACKS, attack, options_of, text_edits
from dgmark_lab.attacks.disguise import HOMOGLYPHS
from dgmark_lab.attacks.edits import crop, delete, edit_count, insert, paste, substitute, swap_neighbours
from dgmark_lab.attacks.text_edits import join_words, words_of
from dgmark_lab.options import summary_of
from support.tiny_wordnet import write_wordnet
from support.unchecked import unchecked

QUICK = settings(max_examples=40)
TOKENIZER = load_tokenizer()
STORY = (
    'Once upon a time, an old king lived by the sea. "Who is there?" he asked.  Nobody answered! The youngest\n'
    "daughter laughed; her sisters slept. In the morning they went out."
)
EDITORS: dict[str, dict[str, Any]] = {
    "substitution": {}, "deletion": {}, "insertion": {}, "crop": {}, "sentence-swap": {}, "homoglyphs": {},
    "whitespace": {}, "zero-width": {},
}  # fmt: skip
WORDS = {"unit": "word"}

units = st.lists(st.integers(0, 40), max_size=80)
budgets = st.floats(0, 1)
seeds = st.integers(0, 2**32)
POINTS = st.characters(codec="utf-8")
texts = st.text(POINTS, max_size=60) | st.lists(st.sampled_from(["a", "bé,", "漢字", " ", "\n", "x."])).map("".join)


def dice(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


ROUNDED = [(15, 0.1, 2), (50, 0.29, 15), (5, 0.1, 1), (4, 0.1, 0), (0, 1, 0), (7, 1, 7)]


@pytest.mark.parametrize(("units", "budget", "edits"), ROUNDED)
def test_a_budget_is_rounded_with_halves_up(units: int, budget: float, edits: int) -> None:
    assert edit_count(units, budget) == edits


@QUICK
@given(units, budgets, seeds)
def test_substitution_changes_exactly_its_budget(units: list[int], budget: float, seed: int) -> None:
    edited = substitute(units, budget, range(50), dice(seed))
    assert sum(a != b for a, b in zip(units, edited, strict=True)) == edit_count(len(units), budget)


@QUICK
@given(units, budgets, seeds)
def test_deletion_takes_exactly_its_budget_and_keeps_the_order(units: list[int], budget: float, seed: int) -> None:
    numbered = list(enumerate(units))
    kept = delete(numbered, budget, dice(seed))
    assert len(kept) == len(units) - edit_count(len(units), budget)
    assert kept == sorted(kept)
    assert set(kept) <= set(numbered)


@QUICK
@given(units, budgets, seeds)
def test_insertion_adds_exactly_its_budget_and_keeps_the_rest(units: list[int], budget: float, seed: int) -> None:
    edited = insert(units, budget, [100, 101], dice(seed))
    assert len(edited) == len(units) + edit_count(len(units), budget)
    assert [unit for unit in edited if unit < 100] == units


@QUICK
@given(units, budgets, budgets)
def test_a_crop_leaves_the_middle(units: list[int], front: float, back: float) -> None:
    numbered = list(enumerate(units))
    first, last = edit_count(len(units), front), len(units) - edit_count(len(units), back)
    assert crop(numbered, front, back) == numbered[first : max(first, last)]


@QUICK
@given(units, st.integers(1, 60), budgets, seeds)
def test_pasting_keeps_the_host_around_one_span(units: list[int], size: int, share: float, seed: int) -> None:
    host = [("host", place) for place in range(size)]
    marked = [("text", place) for place in range(len(units))]
    made = paste(marked, host, share, dice(seed))
    span = [place for kind, place in made if kind == "text"]
    assert len(made) == size
    assert len(span) == min(edit_count(size, share), len(units))
    assert span == list(range(span[0], span[0] + len(span))) if span else True
    assert all(kind == "text" or host[at] == (kind, place) for at, (kind, place) in enumerate(made))


@QUICK
@given(units, st.integers(0, 9), seeds)
def test_swaps_keep_the_parts(units: list[int], swaps: int, seed: int) -> None:
    assert Counter(swap_neighbours(units, swaps, dice(seed))) == Counter(units)


@QUICK
@given(texts)
def test_words_and_the_space_between_them_are_the_text(text: str) -> None:
    lead, words = words_of(text)
    assert join_words(lead, words) == text
    assert all(word.core for word in words)


@settings(max_examples=25)
@given(texts, budgets, seeds, st.sampled_from(sorted(EDITORS)))
def test_the_same_dice_edit_a_text_in_the_same_way(text: str, budget: float, seed: int, name: str) -> None:
    options = {"front": budget} if name == "crop" else {} if name == "sentence-swap" else {"budget": budget}
    edit = attack(name, **options)
    once = edit(text, dice(seed))
    assert edit(text, dice(seed)) == once
    once.encode()  # well-formed


@pytest.mark.parametrize("name", EDITORS)
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_stays(name: str, text: str) -> None:
    options = {"unit": "word"} if name in ("substitution", "deletion", "insertion", "crop") else {}
    assert attack(name, **options)(text, dice()) == text


@pytest.mark.parametrize("name", ["substitution", "deletion", "insertion"])
@pytest.mark.parametrize("unit", ["token", "word"])
def test_no_budget_leaves_the_text(name: str, unit: str) -> None:
    assert attack(name, budget=0, unit=unit)(STORY + " é漢 \u200b", dice()) == STORY + " é漢 \u200b"


@pytest.mark.parametrize(("name", "tokens"), [("deletion", -1), ("insertion", 1)])
def test_token_edits_are_exact_in_ids(name: str, tokens: int) -> None:
    whole = [token for token in TOKENIZER.encode(STORY) if TOKENIZER.decode([token])[:1] == " "] * 3
    text = TOKENIZER.decode(whole)
    edited = (
        attack(name, budget=0.2, source="text")(text, dice()) if tokens > 0 else attack(name, budget=0.2)(text, dice())
    )
    assert len(TOKENIZER.encode(edited)) == len(whole) + tokens * edit_count(len(whole), 0.2)


def test_token_substitution_draws_ordinary_tokens_only() -> None:
    edited = attack("substitution", budget=1)(STORY * 20, dice())
    assert not any(special in edited for special in ("<|endoftext|>", "<|mdm_mask|>"))
    assert len(set(TOKENIZER.encode(edited))) > 500


def test_word_substitution_keeps_punctuation_and_space() -> None:
    edited = attack("substitution", budget=0.5, **WORDS)(STORY, dice())
    old, new = words_of(STORY)[1], words_of(edited)[1]
    assert [(word.before, word.after, word.space) for word in new] == [(w.before, w.after, w.space) for w in old]
    assert sum(a.core != b.core for a, b in zip(old, new, strict=True)) == edit_count(len(old), 0.5)


def test_words_come_from_the_chosen_source(tmp_path: Path) -> None:
    listed = tmp_path / "words.txt"
    listed.write_text("ökonom\n\nxylophone\n", encoding="utf-8")
    old = [word.core for word in words_of(STORY)[1]]

    def new(**options: Any) -> set[str]:
        edited = attack("substitution", budget=1, **WORDS, **options)(STORY, dice())
        return {word.core for word in words_of(edited)[1]}

    assert new(source="words", words=str(listed)) == {"ökonom", "xylophone"}
    assert new(source="text") <= set(old)
    assert not new() & set(old)
    assert all(word.isalpha() for word in new())


def test_a_source_without_another_word_is_an_error() -> None:
    with pytest.raises(InputError, match="another source"):
        attack("substitution", budget=1, source="text", **WORDS)("so so so", dice())


def test_copy_paste_puts_a_span_into_one_of_the_hosts(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.jsonl"
    hosts.write_text('{"text": "h1 h2"}\n{"text": "g1 g2 g3 g4 g5 g6 g7 g8 g9"}\n')
    made = attack("copy-paste", hosts=str(hosts), share=0.5, **WORDS)("t1 t2 t3 t4 t5 t6 t7 t8", dice())
    assert len(made.split()) == 8
    assert sum(word.startswith("t") for word in made.split()) == 4
    assert sum(word.startswith("g") for word in made.split()) == 4
    with pytest.raises(InputError, match="no host text has 99 units"):
        attack("copy-paste", hosts=str(hosts), length=99)("t1", dice())
    with pytest.raises(NoTexts):
        attack("copy-paste", hosts=str(tmp_path / "none.txt"))("t1", dice())


def test_swapped_sentences_are_the_same_sentences() -> None:
    edited = attack("sentence-swap", swaps=1)(STORY, dice(1))
    assert edited != STORY
    assert Counter(edited.split()) == Counter(STORY.split())
    assert attack("sentence-swap")("No end here", dice()) == "No end here"


def test_homoglyphs_look_alike() -> None:
    edited = attack("homoglyphs", budget=0.3)(STORY, dice())
    changed = [(a, b) for a, b in zip(STORY, edited, strict=True) if a != b]
    assert all("CYRILLIC" in unicodedata.name(b) and HOMOGLYPHS[a] == b for a, b in changed)


PROSE = " ".join(STORY.split())
LETTERS = sum(letter in HOMOGLYPHS for letter in STORY)


@pytest.mark.parametrize(
    ("name", "text", "places", "step"),
    [
        ("homoglyphs", STORY, LETTERS, "homoglyphs"),
        ("whitespace", PROSE, PROSE.count(" "), "whitespace"),
        ("zero-width", "abcde f gh", 5, "invisible"),
    ],
)
def test_disguises_are_exact_and_undone(name: str, text: str, places: int, step: str) -> None:
    edited = attack(name, budget=0.5)(text, dice())
    changed = len(edited) - len(text) or sum(a != b for a, b in zip(text, edited, strict=True))
    assert changed == edit_count(places, 0.5)
    assert normalise(edited, [step])[0] == text


def test_every_attack_says_what_it_does_in_a_line() -> None:
    assert all(summary_of(kind).endswith(".") and len(summary_of(kind)) < 120 for kind in ATTACKS.values())
    assert options_of(attack("chain", of="deletion", rounds=2, budget=0.3)) == {
        "each": {"attack": "deletion", "budget": 0.3, "unit": "token", "tokenizer": "storyteller"},
        "rounds": 2,
    }


def test_a_chain_attacks_its_own_result() -> None:
    chained = attack("chain", of="deletion", rounds=3, budget=0.5, **WORDS)("a b c d e f g h", dice())
    assert len(chained.split()) == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no-such", {}, "the attacks are: substitution"),
        ("deletion", {"source": "text"}, "attack deletion has no option source; its options are: unit, tokenizer"),
        ("deletion", {"budget": 1.1}, "option budget of attack deletion is 1.1: .*less than or equal to 1"),
        ("deletion", {"budget": "much"}, "option budget of attack deletion is 'much': .*a valid number"),
        ("substitution", {"unit": "letter"}, "option unit .* 'token' or 'word'"),
        ("substitution", {"source": "dreams"}, "option source .* 'vocabulary', 'text' or 'words'"),
        ("substitution", {"source": "words", "unit": "word"}, "words=FILE"),
        ("insertion", {"source": "words", "words": "x"}, "unit word"),
        ("crop", {"front": 0.7, "back": 0.7}, "together"),
        ("copy-paste", {}, "needs human text"),
        ("copy-paste", {"hosts": "x", "length": 0}, "greater than or equal to 1"),
        ("sentence-swap", {"swaps": -1}, "greater than or equal to 0"),
        ("chain", {}, "of=NAME"),
        ("chain", {"of": "deletion", "rounds": 0}, "greater than or equal to 1"),
        ("refill", {"holes": "round"}, "'random' or 'contiguous'"),
        ("refill", {"settings": {"steps": 3}}, "takes no steps"),
        ("dipper", {"lexical": 120}, "option lexical of attack dipper is 120"),
        ("dipper", {"top_p": 0.0}, "option top_p of attack dipper is 0.0"),
        ("paraphrase", {"max_tokens": 0}, "must be positive"),
    ],
)
def test_invalid_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        attack(name, **options)


def test_synonyms_without_wordnet_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    text_edits.wordnet.cache_clear()
    with pytest.raises(MissingExtra, match=r"nltk\.downloader wordnet"):
        attack("synonyms")


def test_synonyms_share_a_synset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    write_wordnet(tmp_path)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    reader = LazyCorpusLoader("wordnet", WordNetCorpusReader, None)
    monkeypatch.setattr("nltk.corpus.wordnet", reader)
    with warnings.catch_warnings():  # it would rather have other languages, too
        warnings.simplefilter("ignore", UserWarning)
        reader.ensure_loaded()
    text_edits.wordnet.cache_clear()
    text_edits.synonyms_of.cache_clear()
    text = "King, who could not answer: the sea!"
    assert attack("synonyms", budget=1)(text, dice()) == "Monarch, who could not reply: the ocean!"
    once = attack("synonyms", budget=0.13)(text, dice())
    assert sum(a != b for a, b in zip(text.split(), once.split(), strict=True)) == 1
    for opened in reader._data_file_map.values():  # nltk keeps them for the life of the process
        opened.close()
    text_edits.wordnet.cache_clear()
    text_edits.synonyms_of.cache_clear()
