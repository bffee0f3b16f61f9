"""The headers of GGUF files: what they state of a model, its tokenizer, and damage."""

import struct
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark.checkpoint.families import LLADA, family_of
from dgmark.checkpoint.folder import find_checkpoint
from dgmark.checkpoint.gguf import read_header
from dgmark.errors import CheckpointFormat
from dgmark_service.serve_command import _sources
from support import tiny_gguf
from support.command_line import run

FILE = tiny_gguf.GOLDEN / "llada.gguf"
FINGERPRINT = "0bd3e9ed6e9963c5"  # of the tokenizer of the model that the file was made from


def test_a_file_states_its_family_and_its_ids() -> None:
    checkpoint = find_checkpoint(str(FILE))
    assert family_of(checkpoint) is LLADA
    assert checkpoint.vocab_size == tiny_gguf.ROWS
    assert checkpoint.config == {
        "model_type": "llada",
        "vocab_size": tiny_gguf.ROWS,
        "max_position_embeddings": 512,
        "mask_token_id": 0,
        "eos_token_id": [1],
    }


def test_its_tokenizer_is_that_of_the_model_it_was_made_from() -> None:
    tokenizer = dgmark.load_tokenizer(str(FILE))
    assert tokenizer.fingerprint == FINGERPRINT
    assert tokenizer.vocab_size < tiny_gguf.ROWS
    text = "the cat, a nai\u0308ve 12 <|endoftext|>"
    assert tokenizer.decode(tokenizer.encode(text)) == "the cat, a na\u00efve 12 "


def test_a_key_made_for_a_file_reads_texts(tmp_path: Path) -> None:
    done = run("keygen", tmp_path / "key.json", "--model", FILE)
    assert (done.exit_code, "warning" in done.stderr) == (0, False), done.output
    key = dgmark.WatermarkKey.load(tmp_path / "key.json")
    assert (key.spec.table_size, key.spec.tokenizer_fingerprint) == (tiny_gguf.ROWS, FINGERPRINT)
    assert dgmark.detect("the cat sat on a mat. " * 20, key).key_fingerprint == key.fingerprint


@pytest.mark.parametrize("size", [0, 3, 4, 20, 30, 100, 999, 3000, 5555, 8000, 50_000, 130_000])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    whole = FILE.read_bytes()
    assert size < len(whole)
    (tmp_path / "part.gguf").write_bytes(whole[:size])
    with pytest.raises(CheckpointFormat, match=r"part\.gguf is not a whole GGUF file .*: fetch it again"):
        find_checkpoint(str(tmp_path / "part.gguf"))


def damaged(old: bytes, new: bytes) -> bytes:
    whole = FILE.read_bytes()
    assert old in whole
    return whole.replace(old, new, 1)


def field(name: bytes, kind: int, value: bytes) -> bytes:
    return name + struct.pack("<I", kind) + value


EOS = b"tokenizer.ggml.eos_token_id"
EOS_IS_1 = field(EOS, 4, struct.pack("<I", 1))
CONTEXT = b"llada.context_length"
CONTEXT_IS_512 = field(CONTEXT, 4, struct.pack("<I", 512))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (damaged(b"GGUF\x03", b"GGML\x03"), "it does not begin with GGUF"),
        (damaged(b"GGUF\x03", b"GGUF\x04"), "version 4 is not 2 or 3"),
        (damaged(b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03"), "little-endian"),
        (damaged(b"general.architecture\x08", b"general.architecture\x63"), "not a whole GGUF file"),
        (damaged(b"general.architecture", b"general.archibald..."), "has no general.architecture"),
        (damaged(b"llada.context_length", b"llada.context_height"), "has no llada.context_length"),
        (damaged(b"output.weight", b"output.wheels"), None),  # the embeddings tell the size too
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63), "inside its header"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0), "inside its header"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 0) + struct.pack("<IIQ", 9, 9, 1) * 3000, "not a whole GGUF file"),
        (damaged(EOS_IS_1, field(EOS, 5, struct.pack("<i", -1))), "eos token is -1, which is none of its 272 ids"),
        (damaged(EOS_IS_1, field(EOS, 4, struct.pack("<I", 272))), "eos token is 272"),
        (damaged(EOS_IS_1, field(EOS, 7, b"\1")), "eos token is True"),
        (damaged(EOS_IS_1, field(EOS, 8, struct.pack("<Q", 1) + b"x")), "eos token is 'x'"),
        (damaged(EOS_IS_1, field(EOS, 9, struct.pack("<IQB", 0, 1, 1))), r"eos token is \[1\]"),
        (damaged(CONTEXT_IS_512, field(CONTEXT, 5, struct.pack("<i", -5))), "context length is -5"),
        (damaged(CONTEXT_IS_512, field(CONTEXT, 7, b"\1")), "has no llada.context_length"),
    ],
)
def test_a_header_that_is_damaged_or_states_what_no_model_has_is_refused(
    tmp_path: Path, content: bytes, message: str | None
) -> None:
    (tmp_path / "damaged.gguf").write_bytes(content)
    if message is None:
        assert find_checkpoint(str(tmp_path / "damaged.gguf")).vocab_size == tiny_gguf.ROWS
        return
    with pytest.raises(CheckpointFormat, match=message):
        find_checkpoint(str(tmp_path / "damaged.gguf"))


def test_a_vocabulary_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    width, rows = read_header(FILE).shapes["output.weight"]
    name = b"output.weight" + struct.pack("<IQ", 2, width)
    with open(tmp_path / "odd.gguf", "wb") as file:  # a sparse file that has room for so many rows
        file.write(damaged(name + struct.pack("<Q", rows), name + struct.pack("<Q", 2**30)))
        file.truncate(2**40)
    with pytest.raises(CheckpointFormat, match="1073741824 rows"):
        find_checkpoint(str(tmp_path / "odd.gguf"))


def test_a_vocabulary_without_text_is_refused(tmp_path: Path) -> None:
    kinds = b"tokenizer.ggml.token_type" + struct.pack("<IIQ", 9, 5, tiny_gguf.ROWS)
    whole = FILE.read_bytes()
    start = whole.index(kinds) + len(kinds)
    special = struct.pack("<i", 3) * tiny_gguf.ROWS
    (tmp_path / "odd.gguf").write_bytes(whole[:start] + special + whole[start + len(special) :])
    with pytest.raises(CheckpointFormat, match="none of its tokens is text"):
        dgmark.load_tokenizer(str(tmp_path / "odd.gguf"))


START = b"GGUF" + struct.pack("<I", 3)
NAMED = struct.pack("<Q", 1) + b"x"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            struct.pack("<QQ", 1, 0) + NAMED + struct.pack("<I", 400_000) + b"\xff" * 3_200_000,
            "a tensor of 400000 sizes",
        ),
        (struct.pack("<QQ", 1, 0) + NAMED + struct.pack("<IQ", 1, 2**63), "a tensor of the sizes"),
        (struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2**34), "header is longer than"),
        (struct.pack("<QQ", 0, 1) + NAMED + struct.pack("<IIQ", 9, 0, 2**34), "states 17179869184 entries"),
        (struct.pack("<QQ", 0, 2**34), "states 17179869184 fields"),
        (struct.pack("<QQ", 2**34, 0), "states 17179869184 tensors"),
        (struct.pack("<QQ", 0, 2**16) + NAMED + struct.pack("<IIQ", 9, 9, 2**20), None),
    ],
)
def test_a_header_takes_neither_the_memory_nor_the_time_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, message: str | None
) -> None:
    """The file is sparse: it has 64 GB and takes no space. The last header would go on for all of them."""
    monkeypatch.setattr("dgmark.checkpoint.gguf._MAX_HEADER", 2**20)
    with open(tmp_path / "sparse.gguf", "wb") as file:
        file.write(START + header)
        file.truncate(2**36)
    with pytest.raises(CheckpointFormat, match=message):
        find_checkpoint(str(tmp_path / "sparse.gguf"))


@pytest.mark.parametrize("command", [["keygen", "key.json"], ["generate", "--no-watermark", "--prompt", "x"]])
def test_an_autoregressive_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_gguf.write(tmp_path / "llama.gguf", tiny_gguf.llama())
    done = run(*command, "--model", "llama.gguf", code=CheckpointFormat.exit_code)
    assert "holds a model of the architecture 'llama'; of GGUF files dgmark runs the diffusion models" in " ".join(
        done.stderr.split()
    )
    assert not (tmp_path / "key.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"qwen2", b"qwen9", r"its tokenizer \(gpt2, qwen9\) cannot be made from the file alone: .*--tokenizer"),
        (b"gpt2", b"bert", r"its tokenizer \(bert, qwen2\) cannot be made"),
        (b"t h\x04", b"q h\x04", "its tokens and merges do not fit together"),
    ],
)
def test_a_tokenizer_that_cannot_be_made_is_asked_for(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    (tmp_path / "other.gguf").write_bytes(damaged(old, new))
    with pytest.raises(CheckpointFormat, match=message):
        dgmark.load_tokenizer(str(tmp_path / "other.gguf"))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (str(FILE), {"dtype": "fp32"}, r"dtype \(--dtype\) is not an option of a GGUF file"),
        (str(FILE), {"device": "mlx"}, r"device \(--device\) is not an option of a GGUF file"),
        ("storyteller", {"n_threads": 2}, r"n_threads \(--n-threads\) is not an option of a model that is not"),
        (str(FILE), {"n_batch": 0}, r"n_batch \(--n-batch\) is 0, less than 1"),
    ],
)
def test_options_of_other_models_are_refused(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dgmark.errors.SettingsError, match=message):
        dgmark.load_model(model, **options)


def test_a_service_gives_each_of_its_models_the_options_that_it_takes() -> None:
    loading: Any = {"device": "cpu", "n_threads": 2}
    both = _sources(["storyteller", str(FILE)], loading, "other.json", [])
    assert both[0].loading == {"name_or_path": "storyteller", "device": "cpu"}
    assert both[1].loading == {"name_or_path": str(FILE), "n_threads": 2, "tokenizer": "other.json"}
    for model, vain in (("storyteller", "--n-threads"), (str(FILE), "--device")):
        with pytest.raises(dgmark.errors.SettingsError, match=rf"\({vain}\) is not an option of a"):
            _sources([model], loading, None, [])
