"""Tokenizers published as vocab.json and merges.txt, against transformers' own Qwen2 tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import Qwen2Tokenizer

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import CheckpointFormat, ModelNotFound

TEXTS = Path(__file__).parents[2] / "README.md"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level BPE in Dream's layout."""
    folder = tmp_path_factory.mktemp("bpe")
    trained = tokenizers.Tokenizer(BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train([str(TEXTS)], trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    trained.model.save(str(folder))
    return folder


@pytest.fixture(scope="module")
def size(files: Path) -> int:
    return len(json.loads((files / "vocab.json").read_text()))


@pytest.fixture(scope="module")
def dream(files: Path, size: int) -> Tokenizer:
    added = {
        str(size + i): {"content": token, "special": True, "lstrip": False, "rstrip": False, "normalized": False}
        for i, token in enumerate(SPECIAL)
    }
    added[str(size + len(SPECIAL))] = {"content": "<tool_call>", "special": False, "normalized": False}
    (files / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DreamTokenizer", "added_tokens_decoder": added})
    )
    return load_tokenizer(str(files))


@pytest.fixture(scope="module")
def qwen2(files: Path, dream: Tokenizer) -> Qwen2Tokenizer:
    merges: Any = [tuple(line.split()) for line in (files / "merges.txt").read_text().splitlines()[1:]]
    made = Qwen2Tokenizer(vocab=json.loads((files / "vocab.json").read_text()), merges=merges)
    made.add_tokens(list(SPECIAL[1:]), special_tokens=True)
    made.add_tokens(["<tool_call>"])
    return made


def test_the_special_ids_are_those_of_the_files(dream: Tokenizer, size: int) -> None:
    assert [dream.backend.token_to_id(token) for token in SPECIAL] == list(range(size, size + 5))
    assert dream.vocab_size == size + 6
    assert dream.special_ids == frozenset(range(size, size + 5))
    assert dream.end_ids == (size, size + 2)


@given(text=st.text())
@example("It's 1234 o'clock,  isn't IT?\n\n  Yes: café, naïve, Ångström ... \t x=3;\r\n")
@example("<|im_start|>user\nA <|mask|>B<tool_call>C<|im_end|>")
@example("一二三 мир 🙂🙂 \u00a0end ")
def test_any_text_is_cut_as_qwen2_cuts_it(dream: Tokenizer, qwen2: Qwen2Tokenizer, text: str) -> None:
    assert dream.encode(text) == qwen2.encode(text, add_special_tokens=False)
    assert dream.decode(dream.encode(text)) == qwen2.decode(qwen2.encode(text), skip_special_tokens=True)


def copy(files: Path, folder: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(files / name, folder)


def test_added_tokens_alone_are_special(tmp_path: Path, files: Path, size: int) -> None:
    copy(files, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "Dream"}')
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|mask|>": size + 1, "<|endoftext|>": size}))
    assert load_tokenizer(str(tmp_path / ".")).special_ids == {size, size + 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("added_tokens.json", '{"<|mask|>": 5000}', "cannot have id 5000"),
        ("added_tokens.json", "[]", "does not hold a JSON object"),
        ("merges.txt", "q q q q\n", "not valid JSON|not a readable tokenizer"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, files: Path, name: str, content: str, message: str) -> None:
    copy(files, tmp_path)
    (tmp_path / name).write_text(content)
    (tmp_path / "config.json").write_text('{"model_type": "Dream"}')
    with pytest.raises(CheckpointFormat, match=message):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("files_say", [{"tokenizer_class": "RobertaTokenizer"}, {"tokenizer_class": None}])
def test_vocabulary_and_merges_of_others_are_not_cut_as_qwen2(tmp_path: Path, files: Path, files_say: Any) -> None:
    copy(files, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(files_say))
    with pytest.raises(ModelNotFound, match=r"holds no tokenizer\.json"):
        load_tokenizer(str(tmp_path))
