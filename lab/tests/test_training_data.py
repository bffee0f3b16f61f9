"""Documents to tokens to rows: nothing is lost, made up, or drawn from anything but seed and step."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from dgmark.checkpoint.tokenizer import load_tokenizer, wrap
from dgmark.errors import InputError
from dgmark_lab.training.config import Rows
from dgmark_lab.training.corpus import Corpus, Document, prepare_corpus, read_documents, sentence_ends, train_bpe
from dgmark_lab.training.objective import held_out_rows
from dgmark_lab.training.rows import SHORTEST, RowSource
from support.training_setup import tiny_corpus, write_tales


def source(corpus: Corpus, **changes: object) -> RowSource:
    rows = Rows.model_validate({"length": 48, "batch": 8} | changes)
    return RowSource(corpus, rows, seed=0)


# ---- tokens ----


def test_a_new_tokenizer_gives_any_text_back_and_keeps_newlines_apart() -> None:
    tokenizer = wrap(train_bpe(["The fox said.\nThe king heard."] * 9, 300), "new")
    text = "The fox\nsaid: naïve 狐 \t…\n\nEnd"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    newlines = [tokenizer.decode([one]) for one in ids if "\n" in tokenizer.decode([one])]
    assert newlines == ["\n", "\n", "\n"]


def test_sentences_end_with_their_marks_and_quotes() -> None:
    tokenizer = load_tokenizer()
    ends = sentence_ends(tokenizer)
    said = [tokenizer.decode([int(one)]) for one in np.flatnonzero(ends)]
    assert {".", "!", "?", '."', "\n"} <= set(said)
    assert not ends[tokenizer.encode(" the")].any()
    assert not ends[tokenizer.encode(",")].any()


def test_a_corpus_holds_every_document_token_for_token(corpus: Corpus) -> None:
    written = [corpus.tokens[start : start + size] for start, size in corpus.documents]
    texts = [corpus.tokenizer.decode(ids.tolist()) for ids in written]
    assert texts == [one.text for one in read_documents(corpus.folder.parent / "tales.jsonl")]


def test_a_corpus_is_made_once_and_made_again_for_other_data(tmp_path: Path) -> None:
    first = tiny_corpus(tmp_path)
    made = (first.folder / "manifest.json").stat().st_mtime_ns
    assert (tiny_corpus(tmp_path).folder / "manifest.json").stat().st_mtime_ns == made
    other, shipped = write_tales(tmp_path / "other.jsonl", 5, seed=9), load_tokenizer()
    again = prepare_corpus(other, first.folder, tokenizer=shipped)
    assert len(again.documents) == 5
    assert again.tokenizer.fingerprint == again.made_from["tokenizer"] == shipped.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "tales.jsonl", "tokens"]


# ---- rows ----


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_windows_of_an_epoch_follow_each_other_through_every_document(corpus: Corpus, epoch: int) -> None:
    rows = source(corpus)
    windows = sorted(map(tuple, rows.epoch(epoch).tolist()))
    for first, size in corpus.documents.tolist():
        inside = [(start, length) for start, length in windows if first <= start < first + size]
        assert inside[0][0] == first or (epoch % 2 == 1 and size > 48 and inside[0][0] - first < 48)
        for (start, length), (following, _) in itertools.pairwise(inside):
            assert length == 48
            assert following == start + 48
        start, length = inside[-1]
        assert 0 <= first + size - start - length < SHORTEST
    assert sum(window[1] for window in windows) > 0.5 * len(corpus.tokens)


def test_an_epoch_shows_every_window_once(corpus: Corpus) -> None:
    rows = source(corpus, end_share=0)
    windows = rows.epoch(0).tolist()
    texts = [corpus.tokens[start : start + size].tolist() + [0] * (48 - size) for start, size in windows]
    seen = [row for step in range(len(windows) // 8) for row in rows.step(step).ids.tolist()]
    assert seen == texts[: len(seen)]


def test_a_share_of_the_rows_ends_early_with_a_sentence_and_is_filled(corpus: Corpus) -> None:
    whole, part = source(corpus, end_share=0), source(corpus, end_share=0.25)
    ends = sentence_ends(corpus.tokenizer)
    full = cut = 0
    for step in range(60):
        before, after = whole.step(step), part.step(step)
        full += int((before.sizes == 48).sum())
        cut += int((before.sizes != after.sizes).sum())
        for ids, size in zip(after.ids, after.sizes, strict=True):
            assert (ids[:size] != 0).all()
            assert (ids[size:] == 0).all()
        assert ends[after.ids[np.arange(8), after.sizes - 1]][before.sizes != after.sizes].all()
    # a cut may fall on the row's last token; 5 standard deviations of a binomial
    assert abs(cut - 0.25 * full) < 5 * (full * 0.25 * 0.75) ** 0.5 + 0.05 * full


# ---- held-out rows ----


def test_held_out_rows_are_stretches_of_text_with_their_characters(corpus: Corpus) -> None:
    documents = list(read_documents(corpus.folder.parent / "tales.jsonl"))
    held_out = held_out_rows(documents, corpus.tokenizer, 24, 20)
    assert held_out.ids.shape == (20, 24)
    for ids, characters in zip(held_out.ids, held_out.characters, strict=True):
        text = corpus.tokenizer.decode(ids.tolist())
        assert any(text in one.text for one in documents)
        assert characters == len(text)
    with pytest.raises(InputError, match="smaller --length"):
        held_out_rows([Document("a", ["short"])], corpus.tokenizer, 24, 2)
