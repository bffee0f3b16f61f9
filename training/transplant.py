"""A pretrained encoder's embeddings for another tokenizer's tokens.

An uncased encoder knows no capitals. A token of ours begins as the mean of the encoder's pieces of its text in small
letters, moved a little way along one direction for a capital and another for capitals throughout, so that "The" and
"the" are near each other and can be told apart.
"""

from pathlib import Path

import numpy as np
import tokenizers
import torch
from jaxtyping import Float, UInt16
from torch import Tensor, nn

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import CheckpointFormat

# ours -> BERT's
_SPECIAL = {"<|endoftext|>": "[SEP]", "<|startoftext|>": "[CLS]", "<|mdm_mask|>": "[MASK]", "<|pad|>": "[PAD]"}
_UNKNOWN = "[UNK]"
_CONTINUES = "##"  # how WordPiece writes a piece that does not begin a word
_CASE_STEP = 0.3  # in lengths of a mean embedding


def transplanted(
    embeddings: Float[Tensor, "source_vocab width"],
    source: tokenizers.Tokenizer,
    target: Tokenizer,
    rng: np.random.Generator,
) -> Float[Tensor, "vocab width"]:
    """An embedding for each token of `target`, from the encoder's.

    Args:
        embeddings: the encoder's, in order of id.
        source: its WordPiece tokenizer.
        target: whose tokens are wanted.
        rng: for the directions of case, and for tokens that the encoder has no piece of.
    """
    width = embeddings.shape[1]
    length = float(embeddings.norm(dim=1).mean())
    capital, capitals = (_direction(rng, width) * length * _CASE_STEP for _ in range(2))
    rows = torch.empty(target.vocab_size, width, dtype=embeddings.dtype)
    for token_id in range(target.vocab_size):
        name = target.backend.id_to_token(token_id)
        text = target.decode([token_id])
        pieces = [source.token_to_id(_SPECIAL[name])] if name in _SPECIAL else pieces_of(text, source)
        if not pieces:
            rows[token_id] = embeddings.mean(0) + _direction(rng, width) * length * _CASE_STEP
            continue
        rows[token_id] = embeddings[torch.tensor(pieces)].mean(0)
        if text.strip()[:1].isupper():
            rows[token_id] += capitals if text.strip()[1:].isupper() else capital
    return rows


def pieces_of(text: str, source: tokenizers.Tokenizer) -> list[int]:
    """The encoder's pieces of a token's text; small letters without a space before them continue a word."""
    pieces = [piece for piece in source.encode(text, add_special_tokens=False).tokens if piece != _UNKNOWN]
    if text[:1].islower() and pieces and source.token_to_id(_CONTINUES + pieces[0]) is not None:
        pieces[0] = _CONTINUES + pieces[0]
    ids = [source.token_to_id(piece) for piece in pieces]
    return [one for one in ids if one is not None]


def log_shares(shards: list[UInt16[np.ndarray, " _"]], vocab: int) -> Float[np.ndarray, " vocab"]:
    """Log of each token's share in the shards, one added to each count."""
    counts = np.ones(vocab)
    for ids in shards:
        counts += np.bincount(ids, minlength=vocab)
    logs: Float[np.ndarray, " vocab"] = np.log(counts / counts.sum()).astype(np.float32)
    return logs


def wordpiece_of(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of an encoder's folder.

    Raises:
        CheckpointFormat: there is none, or it is no WordPiece tokenizer with BERT's special tokens.
    """
    try:
        source = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizers package raises plain Exception
        raise CheckpointFormat(f"{folder} has no tokenizer.json that can be read: {error}") from error
    lacking = [name for name in (*_SPECIAL.values(), _UNKNOWN) if source.token_to_id(name) is None]
    if lacking:
        raise CheckpointFormat(f"{folder}: the tokenizer lacks {', '.join(lacking)}; only WordPiece as BERT's is known")
    source.no_truncation()
    source.no_padding()
    return source


def _direction(rng: np.random.Generator, width: int) -> Float[Tensor, " width"]:
    drawn: Tensor = torch.from_numpy(rng.standard_normal(width)).float()
    return nn.functional.normalize(drawn, dim=0)
