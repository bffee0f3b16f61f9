"""The narrator as it is shipped: its files, and one of its texts from the package index to the verdict."""

import json

import pytest

import dgmark
from dgmark.checkpoint.folder import NARRATOR, builtin_folder, find_checkpoint
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.models.assembly import ADAPTERS
from dgmark.models.load import load_model
from support.fresh_process import run_fresh
from support.known_keys import bound_key

WORDS = {"the", "of", "and", "a", "to", "in", "was", "he", "that", "his", "it", "with", "as", "her", "for", "had", "at"}


def test_the_shipped_weights_are_small() -> None:
    shipped = sum((builtin_folder(NARRATOR).parent / name).stat().st_size for name in SHIPPED)
    assert shipped < 60_000_000


SHIPPED = ("storyteller/model.safetensors", "judge/model.safetensors", f"narrator/{ADAPTERS}")


def test_keys_and_detection_need_neither_the_base_nor_torch() -> None:
    run_fresh(
        "import sys; sys.modules['torch'] = None\n"
        "import dgmark\n"
        "key = dgmark.WatermarkKey.generate('narrator')\n"
        "found = dgmark.Detector(key).detect('The lighthouse stood by the sea. ' * 20)\n"
        "assert found.num_tokens_scored > 50\n"
        "assert key.spec.table_size == 49153\n"
    )


def test_its_tokenizer_reads_a_turn_of_chat_and_any_text() -> None:
    tokenizer = load_tokenizer(NARRATOR)
    ids = tokenizer.encode("<|im_start|>user\nTell me.<|im_end|>\n")
    assert (ids[0], ids[-2]) == (1, 2)
    assert (
        tokenizer.backend.token_to_id("<|mask|>")
        == json.loads((find_checkpoint(NARRATOR).folder / "config.json").read_text())["mask_token_id"]
    )
    for text in ("In 1987, 42 ships.\n\n  “Yes”", "naïve 日本語 🙂", "\ttab\r\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_what_it_writes_is_english_and_its_mark_is_found() -> None:
    """A fixed seed. The detector's level is 1e-6, the rate at which text without the mark would be called marked."""
    model = load_model(NARRATOR, device="cpu", dtype="fp32")
    key = bound_key("narrator", model)
    request = "Write a short story about a miller who finds a golden key."
    made = dgmark.generate(model, request, key=key, length=96, chat=True, seed=3, cache="prefix")[0]
    words = made.text.lower().split()
    assert len(words) > 60
    assert sum(word in WORDS for word in words) > 0.2 * len(words)
    assert dgmark.Detector(key, fpr=1e-6).detect(made.text).verdict == "watermarked"
