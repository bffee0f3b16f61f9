"""The tokenizers that come with dgmark, read once a process: to read one takes as long as dozens of detections."""

from functools import cache
from pathlib import Path

from dgmark.checkpoint import tokenizer
from dgmark.checkpoint.folder import BUILTINS, builtin_folder


def install() -> None:
    """Share them among what is imported from now on."""
    read, shared = tokenizer.read_tokenizer, {builtin_folder(name) for name in BUILTINS}
    once = cache(read)

    def read_tokenizer(path: Path, name: str) -> tokenizer.Tokenizer:
        return (once if path in shared else read)(path, name)

    tokenizer.read_tokenizer = read_tokenizer
