"""The fingerprint of a tokenizer: whatever decides ids changes it, and what does not leaves it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers

from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from support.known_keys import builtin_tokenizer

Change = Callable[[dict[str, Any]], None]


def changed(change: Change) -> Tokenizer:
    """The built-in tokenizer, its file changed."""
    state = json.loads(builtin_tokenizer().backend.to_str())
    change(state)
    return wrap(tokenizers.Tokenizer.from_str(json.dumps(state)), "changed")


def lower_case(state: dict[str, Any]) -> None:
    state["normalizer"] = {"type": "Lowercase"}


def one_merge_less(state: dict[str, Any]) -> None:
    state["model"]["merges"].pop()


def two_merges_exchanged(state: dict[str, Any]) -> None:
    merges = state["model"]["merges"]
    merges[100], merges[101] = merges[101], merges[100]


def no_pre_tokenizer(state: dict[str, Any]) -> None:
    state["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def one_more_special_token(state: dict[str, Any]) -> None:
    token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    state["added_tokens"].append({"id": 300, "content": next(iter_word(state, 300)), "special": True, **token})


def iter_word(state: dict[str, Any], token_id: int) -> Any:
    return (word for word, number in state["model"]["vocab"].items() if number == token_id)


@pytest.mark.parametrize(
    "change", [lower_case, one_merge_less, two_merges_exchanged, no_pre_tokenizer, one_more_special_token]
)
def test_what_decides_ids_changes_the_fingerprint(change: Change) -> None:
    assert changed(change).fingerprint != builtin_tokenizer().fingerprint


def truncation(state: dict[str, Any]) -> None:
    state["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}


def padding(state: dict[str, Any]) -> None:
    state["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 3, "pad_type_id": 0,
        "pad_token": "<|pad|>",
    }  # fmt: skip


def dropout(state: dict[str, Any]) -> None:
    state["model"]["dropout"] = 0.5


@pytest.mark.parametrize("change", [truncation, padding, dropout])
def test_what_is_switched_off_leaves_fingerprint_and_ids(change: Change) -> None:
    other, builtin = changed(change), builtin_tokenizer()
    assert other.fingerprint == builtin.fingerprint
    text = "Once upon a time there was an old king who lived in a castle by the sea."
    assert other.encode(text) == builtin.encode(text)
    assert other.encode_batch([text, "a"]) == builtin.encode_batch([text, "a"])


def test_merges_in_the_notation_of_before_are_the_same_merges() -> None:
    """Older files write a merge as one string with a space."""

    def old_notation(state: dict[str, Any]) -> None:
        state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]

    assert changed(old_notation).fingerprint == builtin_tokenizer().fingerprint


def test_the_fingerprint_of_the_built_in_tokenizer_never_changes() -> None:
    assert builtin_tokenizer().fingerprint == "36cf1a6feadfe58e"
