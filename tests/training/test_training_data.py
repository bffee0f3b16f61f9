"""Documents to shards to rows: nothing is lost, made up, or drawn from anything but seed and step."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.normalizers import StripAccents
from tokenizers.pre_tokenizers import WhitespaceSplit
from typer.testing import CliRunner

from dgmark.checkpoint.tokenizer import load_tokenizer, wrap
from dgmark.errors import CheckpointFormat, InputError, NoTexts, SettingsError
from support.training_setup import tiny_shards, write_tales
from training import prepare
from training.config import Rows
from training.corpus import Document, read_documents
from training.nelbo import held_out_rows
from training.rows import SHORTEST, RowSource
from training.shards import Shards, open_shards, prepare_shards
from training.tokens import sentence_ends, special_ids, train_bpe, training_tokenizer


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return tiny_shards(tmp_path_factory.mktemp("data"))


def documents_of(shards: Shards) -> list[np.ndarray]:
    return [shards.tokens[shard][start : start + size] for shard, start, size in shards.documents]


def source(shards: Shards, seed: int = 0, **changes: object) -> RowSource:
    rows = Rows.model_validate({"length": 48, "batch": 8} | changes)
    return RowSource(shards, rows, special_ids(shards.tokenizer).end, sentence_ends(shards.tokenizer), seed)


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
    with pytest.raises(InputError, match=r"bad\.jsonl:2 is no document"):
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


def test_special_ids_are_llada_s_and_an_end_token_is_required(shards: Shards) -> None:
    assert (special_ids(shards.tokenizer).mask, special_ids(shards.tokenizer).end) == (2, 0)
    nothing = wrap(
        Backend.from_str('{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}'), "x"
    )
    with pytest.raises(CheckpointFormat, match="no end token"):
        special_ids(nothing)


def test_a_tokenizer_file_that_truncates_and_pads_does_neither_in_training(shards: Shards, tmp_path: Path) -> None:
    backend = Backend.from_file(str(shards.folder / "tokenizer.json"))
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = training_tokenizer(str(tmp_path))
    for text in ("A", "The fox went to the wood. The king ate the bread. A girl saw a ship."):
        assert tokenizer.encode(text) == shards.tokenizer.encode(text)


def test_sentences_end_with_their_marks_and_quotes() -> None:
    tokenizer = load_tokenizer()
    ends = sentence_ends(tokenizer)
    said = [tokenizer.decode([int(one)]) for one in np.flatnonzero(ends)]
    assert {".", "!", "?", '."', "\n"} <= set(said)
    assert not ends[tokenizer.encode(" the")].any()
    assert not ends[tokenizer.encode(",")].any()


# ---- shards ----


def test_shards_hold_every_document_token_for_token(shards: Shards) -> None:
    texts = [shards.tokenizer.decode(ids.tolist()) for ids in documents_of(shards)]
    assert texts == [one.text for one in read_documents(shards.folder.parent / "tales.jsonl")]
    assert shards.manifest["tokens"] == sum(map(len, documents_of(shards)))
    assert shards.manifest["characters"] == sum(map(len, texts))


def test_many_small_shards_hold_the_same_as_one(tmp_path: Path, shards: Shards) -> None:
    data = shards.folder.parent / "tales.jsonl"
    split = prepare_shards(data, tmp_path / "tokens", tokenizer=shards.tokenizer, shard_tokens=300)
    assert len(split.tokens) > 3
    for whole, parts in zip(documents_of(shards), documents_of(split), strict=True):
        assert np.array_equal(whole, parts)


def test_shards_are_made_once_and_made_again_for_other_data(tmp_path: Path) -> None:
    first = tiny_shards(tmp_path)
    made = (first.folder / "manifest.json").stat().st_mtime_ns
    assert (tiny_shards(tmp_path).folder / "manifest.json").stat().st_mtime_ns == made
    other = write_tales(tmp_path / "other.jsonl", 5, seed=9)
    again = prepare_shards(other, first.folder, tokenizer=None, vocab_size=320)
    assert again.manifest["documents"] == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "tales.jsonl", "tokens"]


def test_missing_and_damaged_shards_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoTexts, match=r"python -m training\.prepare"):
        open_shards(tmp_path)
    shards = tiny_shards(tmp_path)
    (shards.folder / "tokens-00000.npy").unlink()
    with pytest.raises(InputError, match="prepare the data again"):
        open_shards(shards.folder)


def test_a_document_of_which_nothing_is_left_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "some.jsonl"
    data.write_text('{"id": 1, "paragraphs": ["a fox"]}\n{"id": 2, "paragraphs": ["\\u0301"]}\n')
    backend = Backend(WordLevel({"a": 0, "fox": 1, "[SEP]": 2}))
    backend.normalizer = StripAccents()
    backend.pre_tokenizer = WhitespaceSplit()
    shards = prepare_shards(data, tmp_path / "tokens", tokenizer=wrap(backend, "words"))
    assert shards.documents.tolist() == [[0, 0, 2]]


def test_the_command_prepares_shards(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(prepare.main)
    data = write_tales(tmp_path / "tales.jsonl", 3)
    done = CliRunner().invoke(
        app, ["--data", str(data), "--out", str(tmp_path / "out"), "--tokenizer", "new", "--vocab-size", "300"]
    )
    assert done.exit_code == 0, done.output
    shards = open_shards(tmp_path / "out")
    assert shards.tokenizer.vocab_size == 300
    assert f"3 documents, {shards.manifest['tokens']} tokens" in done.stderr
    missing = CliRunner().invoke(app, ["--data", str(data), "--out", str(tmp_path), "--tokenizer", "no such model"])
    assert missing.exit_code == 6


def test_a_shipped_tokenizer_is_kept(tmp_path: Path) -> None:
    shipped = training_tokenizer("storyteller")
    shards = prepare_shards(write_tales(tmp_path / "tales.jsonl", 3), tmp_path / "tokens", tokenizer=shipped)
    assert shards.tokenizer.fingerprint == shipped.fingerprint == shards.manifest["tokenizer_fingerprint"]


# ---- rows ----


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_windows_of_an_epoch_follow_each_other_through_every_document(shards: Shards, epoch: int) -> None:
    rows = source(shards)
    windows = sorted(map(tuple, rows.parts[0].epoch(epoch).tolist()))
    for shard, first, size in shards.documents.tolist():
        inside = [(start, length) for of, start, length in windows if of == shard and first <= start < first + size]
        assert inside[0][0] == first or (epoch % 2 == 1 and size > 48 and inside[0][0] - first < 48)
        for (start, length), (following, _) in itertools.pairwise(inside):
            assert length == 48
            assert following == start + 48
        start, length = inside[-1]
        assert 0 <= first + size - start - length < SHORTEST
    assert sum(window[2] for window in windows) > 0.5 * shards.manifest["tokens"]


def test_rows_are_a_function_of_seed_and_step(shards: Shards) -> None:
    forwards = {step: source(shards).step(step).ids for step in range(30)}
    backwards = source(shards)
    for step in reversed(range(30)):
        assert np.array_equal(backwards.step(step).ids, forwards[step])
    assert not np.array_equal(source(shards, seed=1).step(0).ids, forwards[0])
    assert not np.array_equal(forwards[0], forwards[1])


def test_an_epoch_shows_every_window_once(shards: Shards) -> None:
    rows = source(shards, end_share=0)
    windows = len(rows.parts[0].epoch(0))
    seen = [tuple(row) for step in range(windows // 8) for row in rows.step(step).ids.tolist()]
    expected = set()
    for shard, start, size in rows.parts[0].epoch(0).tolist():
        text = shards.tokens[shard][start : start + size].tolist()
        expected.add(tuple(text + [0] * (48 - size)))
    assert set(seen) <= expected
    assert len(expected) - len(set(seen)) <= 8


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_rows_that_end_early_end_with_a_sentence_and_are_filled(shards: Shards, share: float) -> None:
    rows = source(shards, end_share=share)
    ends = sentence_ends(shards.tokenizer)
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


def test_the_share_of_rows_cut_is_the_setting_s(shards: Shards) -> None:
    whole, part = source(shards, end_share=0), source(shards, end_share=0.25)
    full = changed = 0
    for step in range(60):
        before, after = whole.step(step), part.step(step)
        full += int((before.sizes == 48).sum())
        changed += int((before.sizes != after.sizes).sum())
    # a cut may fall on the row's last token; 5 standard deviations of a binomial
    assert abs(changed - 0.25 * full) < 5 * (full * 0.25 * 0.75) ** 0.5 + 0.05 * full


def test_a_share_of_the_steps_has_short_rows(shards: Shards) -> None:
    rows = source(shards, short_share=0.5, short_lengths=(16, 24))
    lengths = [rows.step(step).ids.shape[1] for step in range(60)]
    assert set(lengths) == {16, 24, 48}
    assert 15 <= lengths.count(48) <= 45


# ---- mixtures ----


def numbers_of(rows: RowSource, steps: int) -> list[int]:
    """Which document each row of the first steps is from."""
    starts = rows.shards.documents[:, 1]
    seen = [rows.parts[part].window(index)[1] for step in range(steps) for part, index in rows._dealt(step)]
    return [int(np.searchsorted(starts, start, side="right")) - 1 for start in seen]


def test_shards_know_their_documents_names(shards: Shards) -> None:
    assert shards.names == [f"tale-{number}" for number in range(40)]
    assert len(shards.documents) == 40


def test_every_stretch_of_rows_has_the_mixture_s_shares(shards: Shards) -> None:
    rows = source(shards, mixture={"tale-1": 0.5, "tale-2": 0.25})
    assert [len(part.documents) for part in rows.parts] == [11, 11, 18]  # 1, 10..19; 2, 20..29; the others
    firsts = [f"tale-{number}"[:6] for number in numbers_of(rows, 40)]
    for start in range(0, 320, 32):
        stretch = firsts[start : start + 32]
        # the fractional parts of multiples of the golden ratio stray by less than 2 of 32 from an interval's length
        assert abs(stretch.count("tale-1") - 16) <= 2
        assert abs(stretch.count("tale-2") - 8) <= 2


def test_a_part_of_a_mixture_shows_every_window_once_an_epoch(shards: Shards) -> None:
    rows = source(shards, mixture={"tale-1": 0.5})
    windows = len(rows.parts[0].epoch(0))
    dealt = [index for step in range(windows) for part, index in rows._dealt(step) if part == 0]
    assert dealt == list(range(len(dealt)))
    assert len(dealt) > 2 * windows
    shown = [tuple(rows.parts[0].window(index)) for index in range(windows)]
    assert sorted(shown) == sorted(map(tuple, rows.parts[0].epoch(0)))


def test_a_mixture_of_all_documents_by_their_length_is_no_mixture_s_rows(shards: Shards) -> None:
    assert np.array_equal(source(shards, mixture={"tale": 1.0}).step(3).ids, source(shards).step(3).ids)


def test_a_mixture_that_does_not_fit_is_refused(shards: Shards) -> None:
    with pytest.raises(SettingsError, match="no document is left whose id begins with 'fable'"):
        source(shards, mixture={"fable": 0.5})
    with pytest.raises(SettingsError, match=r"must sum to 1, not 0\.5"):
        source(shards, mixture={"tale": 0.5})
    with pytest.raises(ValueError, match=r"sum to 1\.2, more than 1"):
        source(shards, mixture={"tale-1": 0.7, "tale-2": 0.5})


# ---- packed rows ----


def test_packed_rows_hold_a_document_s_end_and_beginnings_of_others_of_its_part(shards: Shards) -> None:
    settings: dict[str, Any] = {"mixture": {"tale-1": 0.5}, "length": 48, "end_share": 0.0}
    packed, plain = source(shards, pack_share=1.0, **settings), source(shards, **settings)
    end = special_ids(shards.tokenizer).end
    joined = 0
    for step in range(20):
        rows, before = packed.step(step), plain.step(step)
        assert np.array_equal(rows.ids, packed.step(step).ids)
        assert (rows.sizes == 48).all()
        for number, (row, old, size) in enumerate(zip(rows.ids, before.ids, before.sizes, strict=True)):
            assert np.array_equal(row[:size], old[:size])
            part = packed.parts[packed._dealt(step)[number][0]]
            stretches = np.split(row[size:], np.flatnonzero(row[size:] == end))[1:]
            for stretch in stretches:
                beginnings = (shards.tokens[shard][start : start + length] for shard, start, length in part.documents)
                assert any(np.array_equal(stretch[1:], one[: len(stretch) - 1]) for one in beginnings)
            joined += len(stretches)
    assert joined > 20


# ---- held-out rows ----


def test_held_out_rows_are_stretches_of_text_with_their_characters(shards: Shards) -> None:
    documents = list(read_documents(shards.folder.parent / "tales.jsonl"))
    held_out = held_out_rows(documents, shards.tokenizer, 24, 20)
    assert held_out.ids.shape == (20, 24)
    for ids, characters in zip(held_out.ids, held_out.characters, strict=True):
        text = shards.tokenizer.decode(ids.tolist())
        assert any(text in one.text for one in documents)
        assert characters == len(text)


def test_held_out_rows_need_documents_as_long(shards: Shards) -> None:
    with pytest.raises(InputError, match="smaller --length"):
        held_out_rows([Document("a", ["short"])], shards.tokenizer, 24, 2)
