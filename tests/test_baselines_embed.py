"""What the baselines do to logits, against obvious references: the gradient by autograd, the green positions by hand."""

import pytest
import torch
from torch import Tensor

import dgmark
from dgmark.baselines import Gloaguen, scheme
from dgmark.baselines.prf import states, threshold, uniform_bits
from dgmark.decode import View
from dgmark.key import WatermarkKey
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark import WatermarkSpec

TOY = ToyDenoiser(end_ids=())
V = TOY.vocab_size
MASK = TOY.mask_id
FORBIDDEN = torch.tensor([0, *range(26, V)])
KEY = WatermarkKey(
    spec=WatermarkSpec(table_size=V, tokenizer=TOY.tokenizer.name, tokenizer_fingerprint=TOY.tokenizer.fingerprint),
    key_id="test",
    secret=bytes(range(32)),
)
WIDTH = 6
# two canvases of a prompt of 3 and a response of 9; the window is its places 2..7, with 0 and 1 committed
IDS = torch.tensor([[5, 6, 7, 8, 9, 0, 11, 0, 0, 0, 0, 0], [5, 6, 7, 4, 3, 0, 0, 12, 0, 13, 0, 0]])


def view(temperature: float = 1.0, seed: int = 0) -> View:
    logits = torch.randn(2, WIDTH, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    masked = IDS[:, 5 : 5 + WIDTH] == MASK
    return View(logits, IDS, 5, masked, torch.arange(2, 2 + WIDTH), MASK, FORBIDDEN, temperature)


def green(name: str, contexts: Tensor, tokens: Tensor, gamma: float = 0.5) -> Tensor:
    made = scheme(name)
    assert not isinstance(made, dgmark.baselines.DgMark)
    return uniform_bits(states(made.subkey(KEY), contexts), tokens) < threshold(gamma)


def biased(name: str, given: View, **options: object) -> Tensor:
    """What is added to each place of the window; 0 at committed ones."""
    bias = scheme(name, **options).steering(KEY, TOY).bias
    assert bias is not None
    before = given.logits.clone()
    added = torch.zeros_like(given.logits)
    added[given.masked] = bias(given) - given.logits[given.masked]
    assert torch.equal(given.logits, before)
    return added


def test_kgw_biases_the_green_list_of_a_committed_left_neighbour_and_nothing_else() -> None:
    given = view()
    added = biased("kgw", given, delta=3.0)
    for row in range(2):
        for place in range(WIDTH):
            left = int(IDS[row, 5 + place - 1])
            expected = torch.zeros(V, dtype=torch.float64)
            if given.masked[row, place] and left != MASK:
                expected = 3.0 * green("kgw", torch.full((V,), left), torch.arange(V))
            torch.testing.assert_close(added[row, place], expected.double())
    assert 0 < int((added != 0).any(-1).sum()) < int(given.masked.sum())


# ---- the energy, in full: every context and every token, differentiated by torch ----


def split_energy(own: Tensor, around: Tensor, known: Tensor, made: Gloaguen) -> Tensor:
    """The energy with the distributions of tokens and of contexts apart, so that either can be held still."""
    ranks = torch.from_numpy(made.ranks(KEY, V))
    every = torch.arange(V)
    total = torch.zeros((), dtype=own.dtype)
    for s in range(3, len(own)):
        beside = [s + offset for offset in made.offsets]
        if not known[s] or not all(0 <= t < len(own) and known[t] for t in beside):
            continue
        contexts = torch.cartesian_prod(*[every for _ in beside]).reshape(-1, len(beside))
        hashes = ranks[contexts].amin(1) if made.hash == "min" else contexts.sum(1)
        chance = torch.stack([around[t][contexts[:, j]] for j, t in enumerate(beside)]).prod(0)
        table = uniform_bits(states(made.subkey(KEY), hashes)[:, None], every) < threshold(made.gamma)
        total = total + (chance[:, None] * table * own[s]).sum()
    return total


@pytest.mark.parametrize("offsets", [(-1,), (1,), (-1, 1), (-2, -1), (-1, 1, 2)])
@pytest.mark.parametrize("hash_name", ["sum", "min"])
@pytest.mark.parametrize(("boost", "predict"), [(True, True), (True, False), (False, True)])
def test_alpha_is_the_gradient_of_the_energy(
    offsets: tuple[int, ...], hash_name: str, boost: bool, predict: bool
) -> None:
    if len(offsets) == 3 and not (boost and predict):
        pytest.skip("one case of three neighbours is enough")
    made = scheme("gloaguen", offsets=offsets, hash=hash_name, boost=boost, predict=predict, top_k=V**3)
    assert isinstance(made, Gloaguen)
    given = view()
    weights = torch.softmax(given.logits.index_fill(-1, FORBIDDEN, -torch.inf), -1)
    added = biased("gloaguen", given, offsets=offsets, hash=hash_name, boost=boost, predict=predict, top_k=V**3)
    for row in range(2):
        p = torch.zeros(12, V, dtype=torch.float64)
        committed = IDS[row] != MASK
        p[committed] = torch.nn.functional.one_hot(IDS[row][committed], V).double()
        open_places = given.masked[row].nonzero()[:, 0]
        p[5 + open_places] = weights[row, open_places]
        known = committed.clone()
        known[5 + open_places] = True
        # the terms of the prompt's own tokens are left out: the response begins at column 3
        free = p.clone().requires_grad_()
        own = p.clone() if not boost else free
        around = p.clone() if not predict else free
        (gradient,) = torch.autograd.grad(split_energy(own, around, known, made), free)
        expected = made.delta / (len(offsets) + 1) * gradient[5 : 5 + WIDTH]
        expected[~given.masked[row]] = 0
        # a token that no position may take has no chance, and so no gradient here
        expected[:, FORBIDDEN] = 0
        found = added[row].clone()
        found[:, FORBIDDEN] = 0
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
