"""Documents to tokens to rows: nothing is lost, made up, or drawn from anything but seed and step."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark_lab.training.config import Rows
from dgmark_lab.training.corpus import Corpus, prepare_corpus, read_documents, sentence_ends
from dgmark_lab.training.objective import held_out_rows
from dgmark_lab.training.rows import SHORTEST, RowSource
from support.training_setup import write_tales


def source(corpus: Corpus, **changes: object) -> RowSource:
    rows = Rows.model_validate({"length": 48, "batch": 8} | changes)
    return RowSource(corpus, rows, seed=0)


# ---- tokens ----


def test_sentences_end_with_their_marks_and_quotes() -> None:
    tokenizer = load_tokenizer()
    ends = sentence_ends(tokenizer)
    said = [tokenizer.decode([int(one)]) for one in np.flatnonzero(ends)]
    assert {".", "!", "?", '."', "\n"} <= set(said)
    assert not ends[tokenizer.encode(" the,")].any()


def test_a_corpus_holds_every_document_and_is_made_again_for_other_data(tmp_path: Path) -> None:
    for seed in (0, 9):
        data = write_tales(tmp_path / "tales.jsonl", seed=seed)
        corpus = prepare_corpus(data, tmp_path / "tokens")
        written = [corpus.tokens[start : start + size].tolist() for start, size in corpus.documents]
        assert [corpus.tokenizer.decode(ids) for ids in written] == [one.text for one in read_documents(data)]
        made = (tmp_path / "tokens/manifest.json").stat().st_mtime_ns
        prepare_corpus(data, tmp_path / "tokens")
        assert (tmp_path / "tokens/manifest.json").stat().st_mtime_ns == made


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
    assert windows != rows.epoch(2).tolist()
    assert sorted(windows) == sorted(rows.epoch(2).tolist())
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


def test_held_out_rows_are_stretches_of_text_with_their_characters(corpus: Corpus, tmp_path: Path) -> None:
    documents = list(read_documents(write_tales(tmp_path / "tales.jsonl")))
    held_out = held_out_rows(documents, corpus.tokenizer, 24, 20)
    assert held_out.ids.shape == (20, 24)
    for ids, characters in zip(held_out.ids, held_out.characters, strict=True):
        text = corpus.tokenizer.decode(ids.tolist())
        assert any(text in one.text for one in documents)
        assert characters == len(text)
