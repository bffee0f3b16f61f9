"""Tokenizers for training: a new byte-level BPE, or one from a model's folder; and the ids that the objective needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from jaxtyping import Bool
from tokenizers import decoders, models, pre_tokenizers, trainers

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import CheckpointFormat

# In order of id, as in the built-in model; the names are LLaDA's.
END, START, MASK, PAD = SPECIAL_TOKENS = ("<|endoftext|>", "<|startoftext|>", "<|mdm_mask|>", "<|pad|>")
_CLOSING = "\"'”’)] "


@dataclass(frozen=True)
class SpecialIds:
    """Special ids that the objective needs; `mask` is None if the vocabulary has no mask (autoregressive models)."""

    mask: int | None
    end: int


def train_bpe(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE of `vocab_size` tokens that separates runs of newlines from the words around them."""
    backend = tokenizers.Tokenizer(models.BPE())
    newlines = pre_tokenizers.Split(tokenizers.Regex(r"\n+"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([newlines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def training_tokenizer(name_or_path: str) -> Tokenizer:
    """Load the tokenizer of a model, without the truncation and padding that its file may set.

    Raises:
        ModelNotFound: no model has this name.
        CheckpointFormat: the model has no fast tokenizer, or more tokens than a shard can hold.
    """
    tokenizer = load_tokenizer(name_or_path)
    tokenizer.backend.no_truncation()
    tokenizer.backend.no_padding()
    if tokenizer.vocab_size > 2**16:
        raise CheckpointFormat(f"{name_or_path} has {tokenizer.vocab_size} tokens; shards hold ids below 65,536")
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """Return the mask and end ids of a vocabulary.

    Raises:
        CheckpointFormat: the vocabulary has no end token.
    """
    end = tokenizer.backend.token_to_id(END)
    if end is None:
        raise CheckpointFormat(f"{tokenizer.name} has no end token {END}; train a new tokenizer")
    return SpecialIds(mask=tokenizer.backend.token_to_id(MASK), end=end)


def sentence_ends(tokenizer: Tokenizer) -> Bool[np.ndarray, " vocab"]:
    """Return which tokens end a sentence or line: their text ends with . ! ? (and closing quotes) or has a newline."""
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.decode([token_id])
        ends[token_id] = "\n" in text or text.rstrip(_CLOSING).endswith((".", "!", "?"))
    return ends


def save_tokenizer(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` into a folder."""
    backend.save(str(folder / "tokenizer.json"))
