"""What spells a mask in a text that a model is given is text, in every door; the id of a mask is refused."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dgmark
from dgmark.errors import InputError
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import encode_text
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import MASK_TOKEN, ToyDenoiser
from support.command_line import rows, run

TEXT = f"Once upon a time the word {MASK_TOKEN} was a word"
SHORT: dict[str, Any] = {"length": 8, "block_length": 8, "temperature": 0.5, "seed": 3}


def test_what_spells_a_mask_reads_as_any_other_text(storyteller: NetworkDenoiser) -> None:
    tokenizer = storyteller.tokenizer
    assert storyteller.mask_id in tokenizer.encode(TEXT)
    ids = encode_text(storyteller, TEXT)
    assert storyteller.mask_id not in ids
    assert tokenizer.decode(ids) == TEXT
    # other tokens keep their names and ids, and a text without the mask its ids
    assert encode_text(storyteller, f"<|endoftext|>{TEXT}")[0] == tokenizer.encode("<|endoftext|>")[0]
    before, behind = TEXT.split(MASK_TOKEN)
    assert encode_text(storyteller, before) == tokenizer.encode(before)
    assert ids[: len(tokenizer.encode(before)) - 1] == tokenizer.encode(before)[:-1]
    assert ids[-3:] == tokenizer.encode(behind)[-3:]


def test_a_vocabulary_may_hold_the_mask_as_a_word() -> None:
    """The toy's tokenizer splits at spaces, and has a token for words that it does not know."""
    toy = ToyDenoiser()
    assert toy.tokenizer.encode(f"w1 {MASK_TOKEN} w2") == [3, toy.mask_id, 4]
    assert encode_text(toy, f"w1 {MASK_TOKEN} w2") == encode_text(toy, "w1 another w2") == [3, 2, 4]


def of_columns(model: Any, prompt: Any) -> Any:
    written = dgmark.GenerateColumns(model, None, "prompt", id_column="id", **SHORT)
    (row,) = written(pa.table({"id": ["a"], "prompt": [prompt]})).to_pylist()
    if row["error"] is not None:
        raise InputError(row["error"])
    return row["text"]


DOORS: dict[str, Callable[[Any, Any], str]] = {
    "generate": lambda model, prompt: dgmark.generate(model, [prompt], key=None, **SHORT)[0].text,
    "stream": lambda model, prompt: "".join(dgmark.stream_text(model, prompt, key=None, **SHORT)),
    "columns": of_columns,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_prompt_that_spells_a_mask_is_that_of_its_letters(storyteller: NetworkDenoiser, door: Any) -> None:
    ids = encode_text(storyteller, TEXT)
    assert door(storyteller, TEXT) == door(storyteller, ids)
    with pytest.raises(InputError, match=f"prompt id {storyteller.mask_id} is no text"):
        door(storyteller, storyteller.tokenizer.encode(TEXT))


def test_around_holes_and_in_marked_texts_it_stays(storyteller: NetworkDenoiser) -> None:
    (made,) = dgmark.infill(storyteller, [[TEXT, 6, f" and {MASK_TOKEN} again."]], key=None, seed=3)
    assert made.text.startswith(TEXT)
    assert made.text.endswith(f" and {MASK_TOKEN} again.")
    assert storyteller.mask_id not in made.token_ids
    (marked,) = dgmark.infill(storyteller, [TEXT], key=None, share=0.3, seed=3)
    assert f" {MASK_TOKEN} " in marked.text
    assert storyteller.mask_id not in marked.token_ids


def test_in_a_chat_a_message_spells_it() -> None:
    narrator = dgmark.load_model("narrator", device="cpu")
    ids, plain = (chat_prompt(narrator, f"What is {word}?") for word in (MASK_TOKEN, "water"))
    assert narrator.mask_id not in ids
    assert f"What is {MASK_TOKEN}?" in narrator.tokenizer.decode(ids)
    # the markers of the template stay tokens
    special = narrator.tokenizer.special_ids
    assert [i for i in ids if i in special] == [i for i in plain if i in special] != []


def test_a_row_that_spells_it_is_written() -> None:
    made = run("generate", "--no-watermark", "--length", 8, "--json", TEXT, code=0)
    assert rows(made.stdout)[0]["text"]
