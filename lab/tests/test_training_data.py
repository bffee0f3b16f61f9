"""Documents to tokens: nothing is lost or made up."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.normalizers import StripAccents
from tokenizers.pre_tokenizers import WhitespaceSplit

from dgmark.checkpoint.tokenizer import load_tokenizer, wrap
from dgmark.errors import CheckpointFormat, InputError, NoTexts
from dgmark_lab.training.corpus import (
    Corpus,
    Document,
    open_corpus,
    prepare_corpus,
    read_documents,
    sentence_ends,
    special_ids,
    train_bpe,
    training_tokenizer,
)
from support.training_setup import tiny_corpus, write_tales


def documents_of(corpus: Corpus) -> list[np.ndarray]:
    return [corpus.tokens[start : start + size] for start, size in corpus.documents]


# ---- documents ----


@pytest.mark.parametrize("name", ["tales.jsonl", "tales.jsonl.xz"])
def test_documents_are_read_plain_and_compressed(tmp_path: Path, name: str) -> None:
    documents = list(read_documents(write_tales(tmp_path / name, 3)))
    assert [one.doc_id for one in documents] == ["tale-0", "tale-1", "tale-2"]
    assert documents[0].text == "\n".join(documents[0].paragraphs)


def test_empty_paragraphs_and_documents_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"id": 1, "paragraphs": ["a", " ", "b"]}\n{"id": 2, "paragraphs": [""]}\n')
    assert list(read_documents(path)) == [Document("1", ["a", "b"])]


@pytest.mark.parametrize("line", ["{", '{"id": 1}', '{"id": 1, "paragraphs": [3]}', "[]", '{"paragraphs": ["a"]}'])
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": 1, "paragraphs": ["a"]}\n' + line + "\n")
    with pytest.raises(InputError, match=r"bad\.jsonl:2 is not a document"):
        list(read_documents(path))


def test_missing_empty_and_damaged_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NoTexts, match="cannot be read"):
        list(read_documents(tmp_path / "none.jsonl.xz"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(NoTexts, match="holds no document"):
        list(read_documents(tmp_path / "empty.jsonl"))
    whole = write_tales(tmp_path / "torn.jsonl.xz").read_bytes()
    (tmp_path / "torn.jsonl.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is damaged"):
        list(read_documents(tmp_path / "torn.jsonl.xz"))


# ---- tokenizers ----


def test_a_new_tokenizer_is_built_as_the_shipped_one() -> None:
    trained = json.loads(train_bpe(["a tale of a fox\n\nand a king"] * 9, 300).to_str())
    shipped = json.loads(load_tokenizer().backend.to_str())
    for part in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor"):
        assert trained[part] == shipped[part]
    assert trained["decoder"]["type"] == shipped["decoder"]["type"] == "ByteLevel"


def test_a_new_tokenizer_gives_any_text_back_and_keeps_newlines_apart() -> None:
    tokenizer = wrap(train_bpe(["The fox said.\nThe king heard."] * 9, 300), "new")
    text = "The fox\nsaid: naïve 狐 \t…\n\nEnd"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    newlines = [tokenizer.decode([one]) for one in ids if "\n" in tokenizer.decode([one])]
    assert newlines == ["\n", "\n", "\n"]


def test_special_ids_are_llada_s_and_an_end_token_is_required(corpus: Corpus) -> None:
    assert (special_ids(corpus.tokenizer).mask, special_ids(corpus.tokenizer).end) == (2, 0)
    nothing = wrap(
        Backend.from_str('{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}'), "x"
    )
    with pytest.raises(CheckpointFormat, match="no end token"):
        special_ids(nothing)


def test_training_ignores_a_tokenizer_s_truncation_and_padding(corpus: Corpus, tmp_path: Path) -> None:
    backend = Backend.from_file(str(corpus.folder / "tokenizer.json"))
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = training_tokenizer(str(tmp_path))
    for text in ("A", "The fox went to the wood. The king ate the bread. A girl saw a ship."):
        assert tokenizer.encode(text) == corpus.tokenizer.encode(text)


def test_sentences_end_with_their_marks_and_quotes() -> None:
    tokenizer = load_tokenizer()
    ends = sentence_ends(tokenizer)
    said = [tokenizer.decode([int(one)]) for one in np.flatnonzero(ends)]
    assert {".", "!", "?", '."', "\n"} <= set(said)
    assert not ends[tokenizer.encode(" the")].any()
    assert not ends[tokenizer.encode(",")].any()


# ---- token ids ----


def test_a_corpus_holds_every_document_token_for_token(corpus: Corpus) -> None:
    texts = [corpus.tokenizer.decode(ids.tolist()) for ids in documents_of(corpus)]
    assert texts == [one.text for one in read_documents(corpus.folder.parent / "tales.jsonl")]


def test_a_corpus_is_made_once_and_made_again_for_other_data(tmp_path: Path) -> None:
    first = tiny_corpus(tmp_path)
    made = (first.folder / "manifest.json").stat().st_mtime_ns
    assert (tiny_corpus(tmp_path).folder / "manifest.json").stat().st_mtime_ns == made
    other = write_tales(tmp_path / "other.jsonl", 5, seed=9)
    again = prepare_corpus(other, first.folder, tokenizer=None, vocab_size=320)
    assert len(again.documents) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "tales.jsonl", "tokens"]


def test_a_damaged_corpus_says_what_to_do(tmp_path: Path) -> None:
    corpus = tiny_corpus(tmp_path)
    (corpus.folder / "tokens.npy").unlink()
    with pytest.raises(InputError, match="delete it, so that the data is prepared again"):
        open_corpus(corpus.folder)


def test_documents_that_encode_to_nothing_are_left_out(tmp_path: Path) -> None:
    data = tmp_path / "some.jsonl"
    data.write_text('{"id": 1, "paragraphs": ["a fox"]}\n{"id": 2, "paragraphs": ["\\u0301"]}\n')
    backend = Backend(WordLevel({"a": 0, "fox": 1, "[SEP]": 2}))
    backend.normalizer = StripAccents()
    backend.pre_tokenizer = WhitespaceSplit()
    corpus = prepare_corpus(data, tmp_path / "tokens", tokenizer=wrap(backend, "words"))
    assert corpus.documents.tolist() == [[0, 2]]


def test_a_shipped_tokenizer_is_kept(tmp_path: Path) -> None:
    shipped = training_tokenizer("storyteller")
    corpus = prepare_corpus(write_tales(tmp_path / "tales.jsonl", 3), tmp_path / "tokens", tokenizer=shipped)
    assert corpus.tokenizer.fingerprint == shipped.fingerprint
    assert corpus.made_from["tokenizer"] == shipped.fingerprint
