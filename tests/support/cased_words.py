"""A tokenizer of few words of which several read alike, and keys of words bound to it."""

from functools import cache
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.rules import spec_of
from dgmark.watermark.word_classes import WordClasses

WORDS = ["tea", "!", "<mask>", "Tea", "cup", "?", "TEA", "Cup", "milk", "\u201c"]
# what each of them reads as, written out; the last ones are padding
CLASSES = [0, 1, 2, 0, 4, 5, 0, 4, 8, 9, 10, 11]


@cache
def cased_tokenizer() -> Tokenizer:
    """Words split at spaces; `<mask>` is special."""
    vocabulary = {word: token_id for token_id, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken("<mask>", normalized=False)])
    return wrap(backend, "cased words")


def words_key(secret: int = 1, **options: Any) -> WatermarkKey:
    """A key of words that is the same in every run."""
    tokenizer = cased_tokenizer()
    bound = {"tokenizer_fingerprint": tokenizer.fingerprint, "word_classes": WordClasses.of(tokenizer).fingerprint}
    fields = {"table_size": len(CLASSES), "nearest": 1, "farthest": 4, "tokens": "words", **bound, **options}
    return WatermarkKey(spec_of({"rule": "bigram", **fields}), "test", bytes([secret]) * 32)
