"""Byte-level BPE tokenizers published without a tokenizer.json: as vocab.json and merges.txt (Dream), or inside GGUF.

Dream ships a Python class for them, which dgmark does not run. That class splits text as Qwen2 does; so does this code.
"""

import os
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from dgmark.checkpoint.folder import read_object
from dgmark.checkpoint.gguf import CONTROL, NORMAL, UNUSED, USER_DEFINED, GgufHeader
from dgmark.errors import CheckpointFormat

# How a text becomes words, by the names of llama.cpp. Qwen2's are contractions, letters with one mark before them,
# single digits, punctuation, spaces; the others differ in the digits of a number and in line ends.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = {
    "qwen2": _QWEN2,
    **dict.fromkeys(("llada-moe", "bailingmoe", "bailingmoe2"), _BAILING),
    "llama-bpe": _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|"),
    **dict.fromkeys(("gpt-2", "smollm"), _GPT2),
}

# the letters that bytes are spelled in (GPT-2's): some stand for themselves, the others follow from U+0100 on
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTE_OF_LETTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)
}

_CLASSES = ("DreamTokenizer", "Qwen2Tokenizer")
_MODEL_TYPES = ("dream", "qwen2")


def is_byte_bpe(folder: Path) -> bool:
    """Whether the folder holds vocab.json and merges.txt of Dream or Qwen2.

    RoBERTa and GPT-2 use the same file names but split text differently.
    """
    if not (os.path.isfile(folder / "vocab.json") and os.path.isfile(folder / "merges.txt")):
        return False
    tokenizer_class = read_object(folder / "tokenizer_config.json", or_empty=True).get("tokenizer_class")
    if isinstance(tokenizer_class, str):
        return tokenizer_class.removesuffix("Fast") in _CLASSES
    model_type = read_object(folder / "config.json", or_empty=True).get("model_type")
    return isinstance(model_type, str) and model_type.lower() in _MODEL_TYPES


def read_byte_bpe(folder: Path) -> Tokenizer:
    """Read the tokenizer of a folder with vocab.json and merges.txt.

    Added tokens come from tokenizer_config.json, or else from added_tokens.json; if their ids leave gaps, it is a
    CheckpointFormat.
    """
    try:
        model = BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        added = _added_tokens(folder)
    except CheckpointFormat:
        raise
    except Exception as error:  # the Rust side raises bare Exception
        raise CheckpointFormat(
            f"{folder}: vocab.json and merges.txt are not a readable tokenizer ({error}); fetch them again"
        ) from error
    backend = _assembled(model, "qwen2")
    for token_id, token in sorted(added.items()):
        _add(backend, token)
        if backend.token_to_id(token.content) != token_id:
            raise CheckpointFormat(
                f"{folder}: token {token.content!r} cannot have id {token_id}: ids below it are missing; "
                "fetch the checkpoint again"
            )
    return backend


def byte_bpe_rule(header: GgufHeader) -> str | None:
    """The rule by which a GGUF file's byte-level BPE splits text; None for other tokenizers and rules unknown here."""
    kind, split = (header.fields.get(f"tokenizer.ggml.{field}") for field in ("model", "pre"))
    return split if kind == "gpt2" and isinstance(split, str) and split in _WORDS else None


def gguf_byte_bpe(header: GgufHeader) -> Tokenizer:
    """Make the tokenizer of a GGUF file from its tokens, their merges, and the name of its rule for splitting text."""
    if (split := byte_bpe_rule(header)) is None:
        kind, other = (header.fields.get(f"tokenizer.ggml.{field}") for field in ("model", "pre"))
        raise CheckpointFormat(
            f"{header.path}: its tokenizer ({kind}, {other}) cannot be made from the file alone: give the folder or "
            "the tokenizer.json of the model that it was converted from (--tokenizer; to `dgmark keygen`, its folder "
            "or hub id as --model)"
        )
    tokens, kinds, merges = (header.get(f"tokenizer.ggml.{of}", list) for of in ("tokens", "token_type", "merges"))
    if NORMAL not in kinds:
        raise CheckpointFormat(f"{header.path}: none of its tokens is text, all are special; convert it again")
    try:
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
        ids = {token: i for i, (token, type_) in enumerate(zip(tokens, kinds, strict=True)) if type_ != UNUSED}
        backend = _assembled(BPE(ids, pairs, ignore_merges=split == "llama-bpe"), split)
        for token, type_ in zip(tokens, kinds, strict=True):
            if type_ in (CONTROL, USER_DEFINED):
                _add(backend, AddedToken(token, special=type_ == CONTROL, normalized=False))
    except Exception as error:  # the Rust side raises bare Exception
        raise CheckpointFormat(
            f"{header.path}: its tokens and merges do not fit together ({error}): fetch it again"
        ) from error
    return backend


def _assembled(model: BPE, split: str) -> Tokenizer:
    backend = Tokenizer(model)
    if split == "qwen2":  # the others do not compose letters with their marks
        backend.normalizer = normalizers.NFC()
    words: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(_WORDS[split]), "isolated")]
    if split == "smollm":  # each digit is a word, without the space before it
        words.insert(0, pre_tokenizers.Digits(individual_digits=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _add(backend: Tokenizer, token: AddedToken) -> None:
    backend.add_special_tokens([token]) if token.special else backend.add_tokens([token])


def _added_tokens(folder: Path) -> dict[int, AddedToken]:
    stated = read_object(folder / "tokenizer_config.json", or_empty=True).get("added_tokens_decoder")
    if stated:
        flags = ("special", "lstrip", "rstrip", "single_word", "normalized")
        return {
            int(token_id): AddedToken(token["content"], **{flag: bool(token.get(flag, False)) for flag in flags})
            for token_id, token in stated.items()
        }
    return {
        int(token_id): AddedToken(token, special=True, normalized=False)
        for token, token_id in read_object(folder / "added_tokens.json", or_empty=True).items()
    }
