"""The tokens of a prompt as each kind of server shows them, with parts of characters, and what is not of the text."""

from collections.abc import Callable, Iterator

import pytest

from dgmark.checkpoint.byte_bpe import BYTE_OF_LETTER
from dgmark.models.echoed_tokens import placed
from support.cases import cases

# an emoji, Chinese, a combining mark and a tab, in tokens as a byte-level tokenizer makes them
PIECES = [
    *(b"A", b" fox", b" ", b"\xf0\x9f", b"\xa6", b"\x8a", b",", b"\xe7\x8b", b"\x90", b" e", b"\xcc", b"\x81"),
    *(b"\t", b" end", b" \xe7\x8b", b"\x90", b"\xf0\x9f\xa6", b"\x8a"),
]
TEXT = b"".join(PIECES).decode()


def alone(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def vllm(pieces: list[bytes]) -> Iterator[str]:
    """Since 2026: nothing until a character is whole."""
    held = b""
    for piece in pieces:
        held += piece
        try:
            yield held.decode()
            held = b""
        except UnicodeDecodeError:
            yield ""


def raw(piece: bytes) -> str:
    letters = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}
    return "".join(letters[byte] for byte in piece)


def escaped(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if byte < 0x80 else f"\\x{byte:02x}" for byte in piece)


HABITS: dict[str, Callable[[list[bytes]], list[str] | list[bytes]]] = {
    "vLLM": lambda pieces: [*vllm(pieces)],
    "vLLM before": lambda pieces: [alone(piece) for piece in pieces],
    "vLLM with raw tokens": lambda pieces: [raw(piece) for piece in pieces],
    "SGLang": lambda pieces: [
        piece.decode("latin-1") if "\ufffd" in alone(piece) else alone(piece) for piece in pieces
    ],
    "llama.cpp, from Python": lambda pieces: [piece.decode("utf-8", "ignore") for piece in pieces],
    "llama.cpp, with bytes": lambda pieces: pieces,
    "OpenAI": lambda pieces: [escaped(piece) for piece in pieces],
    # each token alone, of which the tokenizer leaves out the first space
    "text-generation-inference": lambda pieces: [alone(piece).removeprefix(" ") for piece in pieces],
    "with bytes of a vocabulary": lambda pieces: [
        f"<0x{piece[0]:02X}>" if len(piece) == 1 and piece[0] not in b"A," else raw(piece) for piece in pieces
    ],
}


# the characters of each token, and of parts the character
PLACES = [
    *((0, 1), (1, 5), (5, 6), (6, 7), (6, 7), (6, 7), (7, 8), (8, 9), (8, 9), (9, 11), (11, 12), (11, 12)),
    *((12, 13), (13, 17), (17, 19), (18, 19), (19, 20), (19, 20)),
]


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("begin", [[], ["<s>"]])
def test_parts_of_characters_are_placed_as_each_server_shows_them(habit: str, begin: list[str]) -> None:
    shown = HABITS[habit]
    found = placed(TEXT, [*begin, *shown(PIECES), " and"])
    assert found is not None
    assert len(found) == len(begin) + len(PIECES)
    for (start, end), (first, last) in zip(found[len(begin) :], PLACES, strict=True):
        # it shares characters with those beside it where a server does not show more
        assert start < last
        assert first < end
        assert end - start <= max(last - first, 3)
    assert placed(TEXT, shown(PIECES[:9])) is None
    assert placed(TEXT.replace("end", "odd"), shown(PIECES)) is None


@pytest.mark.parametrize(("text", "tokens", "places"), cases(__file__, "placed"))
def test_tokens_are_placed_by_their_characters(text: str, tokens: list[str], places: list[list[int]] | None) -> None:
    assert placed(text, tokens) == (None if places is None else [(start, end) for start, end in places])


def test_long_runs_of_parts_are_placed_by_what_stands_between_them() -> None:
    text = "白日依山尽，黄河入海流。欲穷千里目，更上一层楼。" * 40 + "fox"
    # as a vocabulary of English words has them: all but the full stops in two parts each
    pieces = [part for sign in text for part in ([sign] if sign in "。fox" else ["\ufffd", "\ufffd"])]
    found = placed(text, pieces)
    assert found is not None
    assert [text[start:end] for (start, end), piece in zip(found, pieces, strict=True) if piece == "。"] == ["。"] * 80
    assert found[-3:] == [(len(text) - 3 + n, len(text) - 2 + n) for n in range(3)]
