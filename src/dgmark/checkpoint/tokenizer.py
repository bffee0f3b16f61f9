"""Tokenizers: text to token ids and back, special ids, and the fingerprint that a key is bound to.

A thin frozen wrapper around the `tokenizers` package. No torch, no transformers.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers

from dgmark.arguments.checks import instance, path_text, several
from dgmark.arguments.contents import ids_of
from dgmark.checkpoint.byte_bpe import gguf_byte_bpe, is_byte_bpe, read_byte_bpe
from dgmark.checkpoint.folder import BUILTIN, check_fetched, find_checkpoint
from dgmark.checkpoint.gguf import is_gguf, read_header
from dgmark.errors import CheckpointFormat, InputError, ModelNotFound, SettingsError

# End-of-text and end-of-turn tokens of all families; a vocabulary that lacks one ignores it.
END_TOKENS = (
    *("<|endoftext|>", "<|eot_id|>", "<|im_end|>", "<|role_end|>", "</s>", "[SEP]"),
    *("<[end\u2581of\u2581sentence]>", "<|dlm_pad|>"),  # Seed-Coder's, and what DiffuCoder writes after a text
)

# Text whose ids tell pre-tokenizers apart; part of the fingerprint's version, so it never changes.
PROBE = (
    "The Cat's 12345 mice, THEY'LL e-mail dgmark@example.org at 3.14%!\n\n  def f(x):\r\n\treturn x_1+=2  # ok\n"
    "na\u00efve nai\u0308ve \ufb01ne \uff21\uff22\uff13 \u00bd \u2460 \u00df\u1e9e I\u0307\u0131 "
    "\u201cquoted\u201d \u2018it\u2019s\u2019 \u2014 \u2026 a\u00a0b\u3000c\u200bd\ufeffe\u00adf\u202eg\x07h "
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
    "\u05e2\u05d1\u05e8\u05d9\u05ea \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 "
    "\U0001f642\U0001f469\u200d\U0001f4bb\U0001f1eb\U0001f1f7 <|endoftext|> <|im_end|> </s> [SEP] [MASK] \u2581x "
    + "a" * 120
    + "   \n \n"
)
_MODEL_FLAGS = (
    *("type", "unk_token", "unk_id", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk"),
    *("byte_fallback", "ignore_merges", "max_input_chars_per_word"),
)
_TOKEN_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")

_MOST_IDS = 2**32  # that a tokenizer can have
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class EncodedText:
    """Token ids of a text, and the characters [start, end) that each covers."""

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer.

    Attributes:
        name: where it was loaded from.
        backend: the tokenizer of the `tokenizers` package.
        vocab_size: largest token id plus one; a model's padded vocabulary may be larger.
        special_ids: ids that are never scored.
        end_ids: ids that end a response.
        fingerprint: hash of all that decides ids, to which keys are bound (`tokenizer_fingerprint`).
    """

    name: str
    backend: tokenizers.Tokenizer = field(repr=False)
    vocab_size: int
    special_ids: frozenset[int]
    end_ids: tuple[int, ...]
    fingerprint: str

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without added special tokens.

        Raises:
            SettingsError: `text` is not a text.
            InputError: the tokenizer has no token for a part of it, and no unknown token.
        """
        return list(self._encoded(instance("the text", text, str)).ids)

    def encode_with_offsets(self, text: str) -> EncodedText:
        """Token ids of `text`, and the characters that each covers.

        Raises:
            SettingsError: `text` is not a text.
            InputError: see `encode`.
        """
        encoding = self._encoded(instance("the text", text, str))
        return EncodedText(list(encoding.ids), list(encoding.offsets))

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Token ids of many texts. Computes no offsets, which would double the cost.

        Raises:
            SettingsError: `texts` is not a list, or an item is not a text.
            InputError: a text cannot be encoded, see `encode`.
        """
        texts = [instance("a text", text, str) for text in several(texts, "texts")]
        try:
            batch = self.backend.encode_batch_fast([well_formed(text) for text in texts], add_special_tokens=False)
        except Exception:  # the Rust side raises bare Exception
            return [self.encode(text) for text in texts]
        return [list(encoding.ids) for encoding in batch]

    def _encoded(self, text: str) -> tokenizers.Encoding:
        try:
            return self.backend.encode(well_formed(text), add_special_tokens=False)
        except Exception as error:  # the Rust side raises bare Exception
            raise InputError(
                f"the tokenizer {self.name!r} cannot encode this text ({error}): it has no token for a part of the "
                "text, and no unknown token; leave that part out, or use a model whose tokenizer knows it"
            ) from None

    def decode(self, ids: list[int]) -> str:
        """Text of token ids. Special tokens, and ids that stand for no token, are left out.

        Raises:
            SettingsError: `ids` are not token ids, or one is out of range.
        """
        content = ids_of(ids)
        if content.size and not 0 <= int(content.min()) <= int(content.max()) < _MOST_IDS:
            raise SettingsError("a token id is a whole number from 0 to 2^32 - 1, and one of these is not")
        return str(self.backend.decode(content.tolist(), skip_special_tokens=True))


def load_tokenizer(name_or_path: str | os.PathLike[str] = BUILTIN, revision: str | None = None) -> Tokenizer:
    """Load the tokenizer of a model name, a model folder, a hub id, a `tokenizer.json` file or a GGUF file.

    Raises:
        ModelNotFound: there is no such model or file.
        CheckpointFormat: the file is not a fast tokenizer.
        SettingsError: this is neither a name nor a path.
    """
    name = path_text(name_or_path, "a tokenizer")
    # os.path, whose answer is False for "~nobody" and for names that are too long
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path) or os.path.isfile(path / "tokenizer.json") or is_byte_bpe(path):
        return read_tokenizer(path, name)
    return read_tokenizer(find_checkpoint(name_or_path, revision).folder, name)


def read_tokenizer(path: Path, name: str) -> Tokenizer:
    """Read the tokenizer of a folder (tokenizer.json, or vocab.json and merges.txt), of such a file or a GGUF file."""
    if is_gguf(path):
        return wrap(gguf_byte_bpe(read_header(path)), name)
    file = path if path.is_file() else path / "tokenizer.json"
    if not file.is_file() and is_byte_bpe(path):
        return wrap(read_byte_bpe(path), name)
    if not file.is_file():
        raise ModelNotFound(
            f"{path} holds no tokenizer.json; give a folder that has one, or the file, as the tokenizer (--tokenizer)"
        )
    check_fetched(file)
    try:
        stated = file.read_text(encoding="utf-8")
        backend = tokenizers.Tokenizer.from_str(stated)
    except Exception as error:  # the Rust side raises bare Exception
        raise CheckpointFormat(
            f"{file} is not a readable tokenizer ({error}); give the model's folder or its tokenizer.json"
        ) from error
    _check_stated_ids(file, backend, json.loads(stated).get("added_tokens") or ())
    return wrap(backend, name)


def _check_stated_ids(file: Path, backend: tokenizers.Tokenizer, added: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a file of which a token got another id than it states: added tokens get the next free ones."""
    for token in added:
        given = backend.token_to_id(token["content"])
        if given != token["id"]:
            raise CheckpointFormat(
                f"{file} states id {token['id']} for the token {token['content']!r}, and the tokenizers package gives "
                f"it {given}: ids below it are missing in the file, or another token has its id; fetch the file again, "
                "or give each of its ids a token"
            )


def wrap(backend: tokenizers.Tokenizer, name: str) -> Tokenizer:
    """Wrap a tokenizer that is already loaded (for example `fast_tokenizer.backend_tokenizer`).

    Truncation, padding and dropout are switched off in it: a text has one list of ids, whatever the file asks for.
    """
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None):
        backend.model.dropout = None
    special = {token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special}
    ends = {backend.token_to_id(token) for token in END_TOKENS}
    vocabulary = sorted((token_id, token) for token, token_id in backend.get_vocab(with_added_tokens=True).items())
    return Tokenizer(
        name=name,
        backend=backend,
        vocab_size=vocabulary[-1][0] + 1,
        special_ids=frozenset(special),
        end_ids=tuple(sorted(special & ends)),
        fingerprint=_tokenizer_fingerprint(backend, vocabulary),
    )


def _tokenizer_fingerprint(backend: tokenizers.Tokenizer, vocabulary: list[tuple[int, str]]) -> str:
    """Hash of all that decides which ids a text has: 16 hex digits.

    Hashed are the model (vocabulary, merges, scores, flags), the added tokens with their flags, the definition of the
    normaliser, and the ids of a fixed probe text. The probe stands for the pre-tokenizer: the same splitting of a text
    is defined in several ways, in GGUF files and in versions of the `tokenizers` package.
    """
    state = json.loads(backend.to_str())
    model, added = state["model"], state["added_tokens"]
    merges = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model.get("merges", [])]
    scores = model["vocab"] if isinstance(model["vocab"], list) else []
    content = [
        vocabulary,
        merges,
        scores,
        [model.get(flag) or None for flag in _MODEL_FLAGS],
        sorted((token["id"], token["content"], *(bool(token.get(flag)) for flag in _TOKEN_FLAGS)) for token in added),
        _probe_ids(backend),
    ]
    if normalisers := _normalisers(state["normalizer"]):  # without one, the hash is that of before they were part of it
        content.append(normalisers)
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(b"dgmark/tokenizer/v1\0" + canonical).hexdigest()[:16]


def without_tokens(tokenizer: Tokenizer, ids: frozenset[int], text: str) -> Tokenizer:
    """The tokenizer for a text in which the names of some tokens are text: they give none of these ids."""
    if ids.isdisjoint(tokenizer.encode(text)):
        return tokenizer
    return replace(tokenizer, backend=_with_unknown_names(tokenizer.backend, ids))


@lru_cache(maxsize=8)
def _with_unknown_names(backend: tokenizers.Tokenizer, ids: frozenset[int]) -> tokenizers.Tokenizer:
    """The tokenizer with names for some tokens that nobody can write; all others keep their names and ids."""
    state = json.loads(backend.to_str())
    names = {backend.id_to_token(token_id): f"\0{secrets.token_hex(16)}\0" for token_id in ids}
    vocabulary = state["model"]["vocab"]
    if isinstance(vocabulary, list):
        state["model"]["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    else:
        state["model"]["vocab"] = {names.get(token, token): token_id for token, token_id in vocabulary.items()}
    for token in state["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _normalisers(state: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The steps of a normaliser in order, whatever sequences they are wrapped in."""
    if state is None:
        return []
    if state["type"] == "Sequence":
        return [step for wrapped in state["normalizers"] for step in _normalisers(wrapped)]
    return [state]


def _probe_ids(backend: tokenizers.Tokenizer) -> list[list[int] | None]:
    """The ids of the probe and of its lines; None for what a tokenizer without an unknown token cannot encode."""
    found: list[list[int] | None] = []
    for text in (PROBE, *PROBE.splitlines()):
        try:
            found.append(list(backend.encode(text, add_special_tokens=False).ids))
        except Exception:  # the Rust side raises bare Exception
            found.append(None)
    return found


def well_formed(text: str) -> str:
    """`text` with surrogates, which UTF-8 cannot encode, replaced by U+FFFD. Offsets stay the same."""
    return _SURROGATES.sub("\ufffd", text)
