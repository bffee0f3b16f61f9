"""The groups of sub-keys by plain Python, as docs/keys.md defines them, and key files written by hand."""

import hashlib
import json
import struct
from pathlib import Path


def reference_chunk(secret: bytes, modulus: int, segment: int, chunk: int, token: int) -> list[int]:
    """A token's groups under the 4,096 sub-keys of a chunk as the PRF "shake256-token-v2" defines them."""
    head = b"dgmark/groups/shake256-token-v2\0" + struct.pack("<BQII", modulus, segment, chunk, token)
    stream = hashlib.shake_256(head + secret).digest(10_000)
    if modulus in (2, 4, 8, 16):
        bits = {2: 1, 4: 2, 8: 3, 16: 4}[modulus]
        one_by_one = [stream[place // 8] >> place % 8 & 1 for place in range(4096 * bits)]
        return [sum(one_by_one[bits * n + j] << j for j in range(bits)) for n in range(4096)]
    words = struct.unpack("<5000H", stream)
    limit = 65536 // modulus * modulus
    behind = [word for word in words[4096:] if word < limit]
    return [(word if word < limit else behind.pop(0)) % modulus for word in words[:4096]]


def written(path: Path, content: dict[str, object]) -> Path:
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    path.chmod(0o600)
    return path
