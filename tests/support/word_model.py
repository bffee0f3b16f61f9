"""A toy model of words in letters, for what only words in letters do."""

from functools import cached_property

import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from dgmark.models.toy import END_TOKEN, MASK_TOKEN, ToyDenoiser

LETTERS = "abcdefghijklmnopqrst"


def byte_level_tokenizer(pieces: list[str], merges: list[tuple[str, str]], name: str) -> Tokenizer:
    """A byte-level BPE tokenizer of these pieces, after the toy's mask and end tokens."""
    vocabulary = {piece: number for number, piece in enumerate([MASK_TOKEN, END_TOKEN, *pieces])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in (MASK_TOKEN, END_TOKEN)])
    return wrap(backend, name)


class WordModel(ToyDenoiser):
    """A toy whose tokens are " aa", " ab", ... and single bytes, so that it encodes any text exactly."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"Ġ{a}{b}" for a in LETTERS for b in LETTERS)]
        merges = [pair for a in LETTERS for pair in [("Ġ", a), *((f"Ġ{a}", b) for b in LETTERS)]]
        pieces += [f"Ġ{a}" for a in LETTERS]
        return byte_level_tokenizer(pieces, merges, self.name)


def text_of(words: int, seed: int = 0) -> str:
    """A text of so many words that the model knows."""
    drawn = torch.randint(len(LETTERS), (words, 2), generator=torch.Generator().manual_seed(seed))
    return "Start " + " ".join(LETTERS[a] + LETTERS[b] for a, b in drawn.tolist())
