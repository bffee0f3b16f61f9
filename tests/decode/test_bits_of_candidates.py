"""The bits of candidates under each rule, against a loop over places and candidates; and which keys share a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from dgmark.decode import Window, side_of_rows
from dgmark.decode.marks.bigram import BigramSide
from dgmark.decode.marks.key_store import KeyStore
from dgmark.decode.marks.keyed_side import decode_side
from dgmark.decode.marks.rules import Places
from dgmark.decode.steps.proposals import keyed_shares
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import PositionSpec, tables_of
from support.cased_words import CLASSES, words_key
from support.known_keys import bound_key
from support.plain_decoding import bits_at

MASK = 2
TOY = ToyDenoiser(words=400, end_ids=())
# few ids, so that texts repeat pairs; the largest that a pair can hold among them
IDS = [0, 1, 5, 77, 2**23, 2**24 - 1]


def key_of(nearest: int = 1, farthest: int = 4, subkeys: int = 1) -> WatermarkKey:
    return bound_key("pairs", TOY, nearest=nearest, farthest=farthest, subkeys=subkeys)


def position_key(secret: int, **spec: Any) -> WatermarkKey:
    """A key that is the same in every run."""
    return WatermarkKey(PositionSpec(**{"table_size": 78, **spec}), "test", bytes([secret]) * 32)


PLAIN = [position_key(1), position_key(2, modulus=3), position_key(5, modulus=4, code_length=8)]
ROTATING = [position_key(3, rotation=4), position_key(4, modulus=3, code_length=12, rotation=5)]


@pytest.mark.parametrize("fixed_shapes", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        [PLAIN[0]] * 3,
        [PLAIN[0], None, PLAIN[1]],
        [PLAIN[2], PLAIN[1], None],
        [ROTATING[1]] * 3,
        [ROTATING[0], ROTATING[1], PLAIN[0]],
        [ROTATING[1], None, None],
        *(
            [key_of(*distances, subkeys=256).subkey(3), None, key_of(*distances, subkeys=256).subkey(200)]
            for distances in ((1, 1), (1, 4), (2, 9), (0, 1), (0, 3))
        ),
        [words_key(1, subkeys=256).subkey(3), None, words_key(2, subkeys=256).subkey(200)],
    ],
)
def test_bits_are_those_of_a_loop_over_places_and_candidates(
    keys: Sequence[WatermarkKey | None], fixed_shapes: bool
) -> None:
    """In rows with keys of their own and one without a mark; at committed places too, where an edit asks for them.

    Positions are those of each row; under rule "bigram" they are not read.
    """
    given = [key for key in keys if key is not None]
    pairs = given[0].spec.rule == "bigram"
    if fixed_shapes and not pairs and any(tables_of(key).spec.rotation for key in given):
        return
    side = decode_side(given).empty(given[0], len(keys), "cpu", fixed_shapes=fixed_shapes)
    for row, key in enumerate(keys):
        if key is not None:
            side.put(row, key)
    rng, ids_of = np.random.default_rng(5), IDS if pairs else range(78)
    if given[0].spec.word_classes is not None:
        ids_of = [token for token in range(len(CLASSES)) if token != MASK]
    first, stop, start, width = 6, 24, 8, 12
    rows = torch.tensor([2, 0, 1, 0])  # canvases of a lookahead: several of one row
    nearest, farthest, _ = BigramSide.kind(given[0]) if pairs else (0, 0, None)
    none = [0] * (len({*range(-farthest, 1 - nearest), *range(nearest, farthest + 1)}) if pairs else 1)
    seen: set[tuple[Any, ...]] = set()
    for _ in range(20):
        ids = torch.from_numpy(rng.choice(ids_of, (len(rows), 28)))
        ids[torch.from_numpy(rng.random(ids.shape) < 0.4)] = MASK
        tokens = torch.from_numpy(np.array([rng.permutation([*ids_of, -1])[:5] for _ in range(len(rows) * width)]))
        positions = torch.from_numpy(rng.integers(0, 40, (len(rows), width)))
        places = Places.all_of(Window(ids, start, positions, (first, stop), MASK, rows))
        signs, reached = side.signs(tokens, places).tolist(), side.reached(places).tolist()
        for at, (canvas, column) in enumerate(zip(places.canvas.tolist(), places.column.tolist(), strict=True)):
            text = [-1 if token == MASK else token for token in ids[canvas, first:stop].tolist()]
            place, key = start - first + column, keys[int(rows[canvas])]
            beside = [text[j] for j in range(len(text)) if nearest <= abs(j - place) <= farthest]
            alone = not pairs or nearest == 0
            assert reached[at] == (key is not None and (alone or any(token >= 0 for token in beside)))
            place = place if pairs else int(positions[canvas, column])
            candidates = [token for token in tokens[at].tolist() if token >= 0]
            expected = bits_at(key, text, place, candidates) if key else {}
            assert signs[at] == [expected.get(token, none) for token in tokens[at].tolist()]
            seen.update((reached[at], *bits) for bits in signs[at])
    assert len(seen) > (8 if pairs else 2)  # of two bits each three values


@pytest.mark.parametrize(
    ("keys", "error", "problem"),
    [
        ([key_of(1, 4), None, key_of(1, 2)], SettingsError, "pairs at distances 1 to 2, and these rows at 1 to 4"),
        (
            [words_key(), words_key(tokens="exact", word_classes=None)],
            SettingsError,
            "has pairs of exact tokens, and these rows have others",
        ),
        ([key_of(), None, PLAIN[0]], SettingsError, "keys of the rules bigram and position mark no batch"),
        ([key_of(subkeys=64)], SettingsError, r"has 64 sub-keys.*take one with key\.subkey"),
        ([PLAIN[0], position_key(1, table_size=79)], VocabularyMismatch, "keys of different vocabularies"),
    ],
    ids=["distances", "classes", "rules", "sub-keys", "vocabularies"],
)
def test_keys_that_mark_no_batch_together_are_refused(
    keys: list[WatermarkKey | None], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        side_of_rows(keys, "cpu")


def test_a_refused_key_takes_no_slot_of_a_store() -> None:
    one, two, three = (key_of(subkeys=256).subkey(number) for number in range(3))
    store = KeyStore([one], TOY.vocab_size, "cpu", slots=2)
    held = store.of([one, two]).rows.tolist()
    for refused in (key_of(1, 2), key_of(subkeys=256)):
        for batch in ([refused], [three, refused]):
            with pytest.raises(SettingsError):
                store.of(batch)
            rows = store.of([one, two]).rows
            assert sorted(rows.tolist()) == sorted(held)
            assert store.side.marked(rows).all()
            numbers = [store.side.number[row].item() for row in rows] if isinstance(store.side, BigramSide) else []
            assert numbers == [0, 1]


@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_keyed_draws_are_unbiased_over_all_keys_with_candidates_that_share_a_class(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly: the mean over every assignment of bits to the pairs that are asked for."""
    side = side_of_rows([words_key()], "cpu")
    tokens = torch.tensor([[0, 3, 4, 7, 6, 8, 1]])  # tea Tea cup Cup TEA milk !
    before = torch.tensor([[0.4, 0.2, 0.15, 0.1, 0.05, 0.05, 0.05]], dtype=torch.float64)
    ids = torch.tensor([[8, MASK, MASK, 6, MASK]])  # milk . . TEA .
    places = Places.all_of(Window(ids, 2, torch.tensor([[2]]), (0, 5), MASK, torch.tensor([0])))
    asked, total = dict[int, int](), torch.zeros_like(before)

    def bits_of(number: int) -> Callable[..., torch.Tensor]:
        def signs(_: BigramSide, words: torch.Tensor, __: torch.Tensor) -> torch.Tensor:
            bits = [number >> asked.setdefault(word, len(asked)) & 1 for word in words.reshape(-1).tolist()]
            return (2 * torch.tensor(bits, dtype=torch.int8) - 1).reshape(words.shape)

        return signs

    monkeypatch.setattr(BigramSide, "signs_of_pairs", bits_of(0))
    side.signs(tokens, places)
    assert len(asked) == 7  # pairs of tea, cup, milk and ! with milk and TEA, of which one comes twice
    for number in range(2 ** len(asked)):
        monkeypatch.setattr(BigramSide, "signs_of_pairs", bits_of(number))
        signs = side.signs(tokens, places)
        assert torch.equal(signs[0, 0], signs[0, 1])
        total += keyed_shares(before, signs, alpha, 0.0)
    assert total[0].tolist() == pytest.approx((before[0] * 2 ** len(asked)).tolist(), rel=1e-12)
