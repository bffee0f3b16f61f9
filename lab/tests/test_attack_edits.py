"""Attacks that edit text: budgets are exact, the rest stays, the same dice give the same text."""

import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_support import CASES

from dgmark import load_tokenizer
from dgmark.detection.reading.disguises.normalise import normalise
from dgmark.errors import InputError, NoTexts, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.attacks import ATTACKS, attack
from dgmark_lab.attacks.budgets import edit_count
from dgmark_lab.attacks.disguise import HOMOGLYPHS, MISREAD
from dgmark_lab.attacks.published import WAYS
from dgmark_lab.attacks.text_edits import words_of
from dgmark_lab.options import summary_of
from support.unchecked import unchecked

QUICK = settings(max_examples=40)
TOKENIZER = load_tokenizer()
STORY = (
    'Once upon a time, an old king lived by the sea. "Who is there?" he asked.  Nobody answered! The youngest\n'
    "daughter laughed; her sisters slept. In the morning they went out."
)
OF_UNITS = ["substitution", "deletion", "insertion", "crop"]
EDITORS = [*OF_UNITS, "sentence-swap", "homoglyphs", "whitespace", "zero-width", "ocr"]
WORDS = {"unit": "word"}

units = st.lists(st.integers(0, 40), max_size=80)
budgets = st.floats(0, 1)
seeds = st.integers(0, 2**32)
POINTS = st.characters(codec="utf-8")
texts = st.text(POINTS, max_size=60) | st.lists(st.sampled_from(["a", "bé,", "漢字", " ", "\n", "x."])).map("".join)


def dice(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("units", "budget", "edits"), [(15, 0.1, 2), (50, 0.29, 15), (5, 0.1, 1), (4, 0.1, 0), (0, 1, 0), (7, 1, 7)]
)
def test_a_budget_is_rounded_with_halves_up(units: int, budget: float, edits: int) -> None:
    assert edit_count(units, budget) == edits


@QUICK
@given(units, budgets, budgets, seeds)
def test_edits_meet_their_budget_exactly(units: list[int], budget: float, other: float, seed: int) -> None:
    numbered, count = list(enumerate(units)), edit_count(len(units), budget)
    substituted = ATTACKS["substitution"](budget=budget).edit(units, dice(seed))
    assert sum(a != b for a, b in zip(units, substituted, strict=True)) == count
    kept = ATTACKS["deletion"](budget=budget).edit(numbered, dice(seed))
    assert len(kept) == len(units) - count
    assert kept == sorted(kept)
    assert set(kept) <= set(numbered)
    inserted = ATTACKS["insertion"](budget=budget).edit([unit - 50 for unit in units], dice(seed))
    assert len(inserted) == len(units) + count
    assert [unit for unit in inserted if unit < 0] == [unit - 50 for unit in units]
    back = other * (1 - budget)
    last = len(units) - edit_count(len(units), back)
    assert ATTACKS["crop"](front=budget, back=back).edit(numbered, dice()) == numbered[count : max(count, last)]


@QUICK
@given(texts)
def test_words_and_the_space_between_them_are_the_text(text: str) -> None:
    lead, words = words_of(text)
    assert lead + "".join(map(str, words)) == text
    assert all(word.core for word in words)


@settings(max_examples=25)
@given(texts, budgets, seeds, st.sampled_from(EDITORS))
def test_the_same_dice_edit_a_text_in_the_same_way(text: str, budget: float, seed: int, name: str) -> None:
    options = {"front": budget} if name == "crop" else {} if name == "sentence-swap" else {"budget": budget}
    edit = attack(name, **options)
    once = edit(text, dice(seed))
    assert edit(text, dice(seed)) == once
    once.encode()  # well-formed


@pytest.mark.parametrize("text", ["", " \n", "No end here, é漢 \u200b"])
@pytest.mark.parametrize("name", EDITORS)
def test_a_text_that_nothing_can_be_done_to_stays(name: str, text: str) -> None:
    options: dict[str, Any] = {"crop": {"front": 0}, "sentence-swap": {}}.get(name, {"budget": 0})
    units = [{}, WORDS] if name in OF_UNITS else [{}]
    assert all(attack(name, **options, **unit)(text, dice()) == text for unit in units)


def test_token_edits_are_exact_in_ids() -> None:
    whole = [token for token in TOKENIZER.encode(STORY) if TOKENIZER.decode([token])[:1] == " "] * 3
    edited = attack("deletion", budget=0.2)(TOKENIZER.decode(whole), dice())
    assert len(TOKENIZER.encode(edited)) == len(whole) - edit_count(len(whole), 0.2)


def test_token_substitution_draws_ordinary_tokens_only() -> None:
    edited = attack("substitution", budget=1)(STORY * 20, dice())
    assert not any(special in edited for special in ("<|endoftext|>", "<|mdm_mask|>"))
    assert len(set(TOKENIZER.encode(edited))) > 500


def test_word_substitution_takes_words_of_the_vocabulary_and_keeps_the_rest() -> None:
    edited = attack("substitution", budget=0.5, **WORDS)(STORY, dice())
    old, new = words_of(STORY)[1], words_of(edited)[1]
    assert [word._replace(core="") for word in new] == [word._replace(core="") for word in old]
    drawn = {after.core for before, after in zip(old, new, strict=True) if before.core != after.core}
    assert sum(a.core != b.core for a, b in zip(old, new, strict=True)) == edit_count(len(old), 0.5)
    assert all(word.isalpha() for word in drawn)


def test_a_vocabulary_without_words_cannot_replace_one() -> None:
    with pytest.raises(InputError, match="holds no words: give another tokenizer"):
        attack("substitution", tokenizer=ToyDenoiser().tokenizer, **WORDS)("w1 w2", dice())


@pytest.mark.parametrize("unit", ["word", "token"])
def test_copy_paste_puts_the_text_into_so_much_human_text(unit: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.jsonl"
    hosts.write_text('{"text": "h1 h2"}\n{"text": "g1 g2 g3 g4 g5 g6 g7 g8 g9"}\n')
    text = "t1 t2 t3 t4"
    made = attack("copy-paste", hosts=str(hosts), human=2, unit=unit)(text, dice(1))
    assert text in made
    around = made.replace(text, "")
    count = len(around.split()) if unit == "word" else len(TOKENIZER.encode(around))
    assert count == 2 * (4 if unit == "word" else len(TOKENIZER.encode(text)))
    assert {word[0] for word in around.split()} == {"g", "h"} if unit == "word" else around
    with pytest.raises(InputError, match="have 11 units together, and 12 are asked for"):
        attack("copy-paste", hosts=str(hosts), human=3, **WORDS)(text, dice())
    with pytest.raises(NoTexts):
        attack("copy-paste", hosts=str(tmp_path / "none.txt"))("t1", dice())


def test_swapped_sentences_are_the_same_sentences() -> None:
    edited = attack("sentence-swap", swaps=1)(STORY, dice(1))
    assert edited != STORY
    assert Counter(edited.split()) == Counter(STORY.split())


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
    assert normalise(edited, [step])[0].text == text
    if name == "homoglyphs":
        assert all("CYRILLIC" in unicodedata.name(b) for a, b in zip(text, edited, strict=True) if a != b)
        every = " ".join(f"w{letter}d {letter}w who {letter} why {letter}{letter}" for letter in HOMOGLYPHS)
        assert normalise(attack(name, budget=1)(every, dice()), [step])[0].text == every


def test_a_scan_is_misread_as_programs_misread_it() -> None:
    assert attack("ocr", budget=1)("Wed", dice()) in ("VVccl", "VVocl")
    assert attack("ocr", budget=1)("rn", dice()) == "m"  # one place of two letters
    many = attack("ocr", budget=0.1)(STORY, dice())
    assert len(many.split()) == len(STORY.split())
    unread = [letter for letter in STORY if letter not in MISREAD and not letter.isspace()]
    assert len(unread) < 0.05 * len(STORY)


def test_wrapping_breaks_lines_between_words_only() -> None:
    made = attack("wrap", width=30)(STORY, dice())
    assert max(map(len, made.split("\n"))) <= 30
    assert made.split() == STORY.split()
    assert "The youngest\ndaughter" in made
    assert attack("wrap", width=1)("ab-cd\nef", dice()) == "ab-cd\nef"


@pytest.mark.parametrize("way", WAYS)
def test_publishing_does_what_its_programs_do(way: str) -> None:
    typed = '"I\'m home--at last," he said...\n\nit was a fine office. i slept.'
    assert attack("published", way=way)(typed, dice()) == CASES["published"][way]


def test_typesetting_hyphenates_full_lines_and_loses_no_letter() -> None:
    text = "an unquestionably international accomplishment of fine configuration, " * 30
    lines = attack("published", way="latex")(text, dice()).split("\n")
    assert 60 < max(map(len, lines)) <= 66
    assert sum(line.endswith("-") for line in lines) > len(lines) / 4
    letters = "".join(line.removesuffix("-") for line in lines).replace("\ufb01", "fi").replace(" ", "")
    assert letters == text.replace(" ", "")


MARKUP = '# A *king* & his "sea"\n\nHe said:\x0b\n- who\n- is <there>?\n'
READ = {
    "word": '# A *king* & his "sea"\nHe said:\n- who\n- is <there>?',
    "markdown": 'A king & his "sea"\n\nHe said:\n\nwho\nis <there>?',
}


@pytest.mark.parametrize("kind", READ)
def test_a_document_is_read_as_the_detector_reads_it(kind: str) -> None:
    pytest.importorskip("lxml")
    trip = attack("document", format=kind)
    assert trip(MARKUP, dice()) == READ[kind]
    assert trip(" \n", dice()) == " \n"


def test_nothing_is_read_from_a_page_of_controls() -> None:
    pytest.importorskip("lxml")
    assert attack("document", format="markdown")("\x01\x02 a \x03 " * 20, dice()) == ""


def test_every_attack_says_what_it_does_in_a_line() -> None:
    assert all(summary_of(kind).endswith(".") and len(summary_of(kind)) < 120 for kind in ATTACKS.values())


@pytest.mark.parametrize(("name", "options", "message"), CASES["refused options of attacks"])
def test_invalid_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        attack(name, **options)


@pytest.mark.parametrize("wrong", [b"A text.", None, [5, 6], {"text": "A text."}], ids=repr)
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - {"copy-paste", "synonyms"}))
def test_only_a_text_is_attacked(name: str, wrong: Any) -> None:
    with unchecked(), pytest.raises(SettingsError):
        attack(name)(wrong, dice())


def wordnet(folder: Path, senses: str, nouns: str = "", verbs: str = "") -> str:
    """A WordNet whose files begin with a licence, as those of WordNet do."""
    files = {"index.sense": senses, "data.noun": nouns, "data.verb": verbs, "data.adj": "", "data.adv": ""}
    for name, text in files.items():
        (folder / name).write_text("  1 The licence.  \n" + text)
    return str(folder)


def test_words_are_replaced_by_synonyms_of_their_most_frequent_sense(tmp_path: Path) -> None:
    nouns = (
        "00000100 18 n 03 king 0 male_monarch 0 Rex 1 001 @ 00000200 n 0000 | a ruler  \n"
        "00000300 18 n 02 king 2 baron 0 000 | a magnate  \n00000400 17 n 02 lake 0 loch 0 000 | water  \n"
        "00000500 17 n 02 used 0 secondhand 0 000 | never met  \n00000600 17 n 01 wood 0 000 | trees  \n"
    )
    verbs = "00000700 29 v 02 use 0 apply 0 000 | put to work  \n"
    senses = (
        "king%1:18:00:: 00000100 1 9\nking%1:18:01:: 00000300 2 4\nlake%1:17:00:: 00000400 1 0\n"
        "us%1:17:00:: 00000500 1 9\nuse%2:29:00:: 00000700 1 5\nwood%1:17:00:: 00000600 1 5\n"
    )
    replace = attack("synonyms", wordnet=wordnet(tmp_path, senses, nouns, verbs))
    made = {replace("Kings (two) used wood for a king by the lake.", dice(seed)) for seed in range(40)}
    kings, others = ("Male monarchs", "Rexs"), ("male monarch", "Rex")
    # "lake" was never met in a text, "wood" has no synonym, and "d" is put to verbs alone
    assert made == {f"{many} (two) applyd wood for a {one} by the lake." for many in kings for one in others}
    half = attack("synonyms", wordnet=str(tmp_path), budget=0.5)("A king, a king.", dice())
    assert half.count("king") == 1
    wrong: Any = b"A text."
    with unchecked(), pytest.raises(SettingsError):
        replace(wrong, dice())


@pytest.mark.parametrize(
    "senses", ["", "king%1:18:00:: 00000100 1 9\n", "a line\n"], ids=["none", "no synset", "other"]
)
def test_synonyms_need_a_wordnet(senses: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="synonyms needs WordNet: give wordnet=FOLDER"):
        attack("synonyms")
    with pytest.raises(NoTexts, match=r"is no folder of a WordNet database: .*No such file"):
        attack("synonyms", wordnet=str(tmp_path / "nowhere"))("a long text", dice())
    with pytest.raises(NoTexts, match="is no folder of a WordNet database"):
        attack("synonyms", wordnet=wordnet(tmp_path, senses))("a long text", dice())
