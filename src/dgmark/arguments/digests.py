"""Which text, or which ids, something was made from."""

import hashlib
import json


def sha256_of(content: str | list[int]) -> str:
    """The SHA-256 of a text's UTF-8, or of ids as a JSON list without spaces: which input a row was made from."""
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
