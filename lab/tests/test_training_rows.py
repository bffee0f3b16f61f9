"""Documents to rows: nothing is lost, made up, or drawn from anything but seed and step."""

import itertools

import numpy as np
import pytest

from dgmark.errors import InputError
from dgmark_lab.training.config import Rows
from dgmark_lab.training.corpus import Corpus, Document, read_documents, sentence_ends, special_ids
from dgmark_lab.training.objective import held_out_rows
from dgmark_lab.training.rows import SHORTEST, RowSource


def source(corpus: Corpus, seed: int = 0, **changes: object) -> RowSource:
    rows = Rows.model_validate({"length": 48, "batch": 8} | changes)
    return RowSource(corpus, rows, special_ids(corpus.tokenizer).end, sentence_ends(corpus.tokenizer), seed)


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


def test_rows_are_a_function_of_seed_and_step(corpus: Corpus) -> None:
    forwards = {step: source(corpus).step(step).ids for step in range(30)}
    backwards = source(corpus)
    for step in reversed(range(30)):
        assert np.array_equal(backwards.step(step).ids, forwards[step])
    assert not np.array_equal(source(corpus, seed=1).step(0).ids, forwards[0])
    assert not np.array_equal(forwards[0], forwards[1])


def test_an_epoch_shows_every_window_once(corpus: Corpus) -> None:
    rows = source(corpus, end_share=0)
    windows = len(rows.epoch(0))
    seen = [tuple(row) for step in range(windows // 8) for row in rows.step(step).ids.tolist()]
    expected = set()
    for start, size in rows.epoch(0).tolist():
        text = corpus.tokens[start : start + size].tolist()
        expected.add(tuple(text + [0] * (48 - size)))
    assert set(seen) <= expected
    assert len(expected) - len(set(seen)) <= 8


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_rows_that_end_early_end_with_a_sentence_and_are_filled(corpus: Corpus, share: float) -> None:
    rows = source(corpus, end_share=share)
    ends = sentence_ends(corpus.tokenizer)
    cut = 0
    for step in range(12):
        batch = rows.step(step)
        for ids, size in zip(batch.ids, batch.sizes, strict=True):
            assert (ids[:size] != 0).all()
            assert (ids[size:] == 0).all()
            if size < 48:
                cut += 1
                assert ends[ids[size - 1]]
    assert (cut > 60) if share else (cut < 50)


def test_the_share_of_rows_cut_is_the_setting_s(corpus: Corpus) -> None:
    whole, part = source(corpus, end_share=0), source(corpus, end_share=0.25)
    full = changed = 0
    for step in range(60):
        before, after = whole.step(step), part.step(step)
        full += int((before.sizes == 48).sum())
        changed += int((before.sizes != after.sizes).sum())
    # a cut may fall on the row's last token; 5 standard deviations of a binomial
    assert abs(changed - 0.25 * full) < 5 * (full * 0.25 * 0.75) ** 0.5 + 0.05 * full


def test_a_share_of_the_steps_has_short_rows(corpus: Corpus) -> None:
    rows = source(corpus, short_share=0.5, short_lengths=(16, 24))
    lengths = [rows.step(step).ids.shape[1] for step in range(60)]
    assert set(lengths) == {16, 24, 48}
    assert 15 <= lengths.count(48) <= 45


# ---- held-out rows ----


def test_held_out_rows_are_stretches_of_text_with_their_characters(corpus: Corpus) -> None:
    documents = list(read_documents(corpus.folder.parent / "tales.jsonl"))
    held_out = held_out_rows(documents, corpus.tokenizer, 24, 20)
    assert held_out.ids.shape == (20, 24)
    for ids, characters in zip(held_out.ids, held_out.characters, strict=True):
        text = corpus.tokenizer.decode(ids.tolist())
        assert any(text in one.text for one in documents)
        assert characters == len(text)


def test_held_out_rows_need_documents_as_long(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="smaller --length"):
        held_out_rows([Document("a", ["short"])], corpus.tokenizer, 24, 2)
