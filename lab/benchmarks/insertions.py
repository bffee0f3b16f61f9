"""Measure what deletions and insertions leave of the mark, beside texts of the same model without any.

No model at hand was trained to delete and insert. So a model is made to ask for both at committed places of the block,
by chance and whatever the key: `Editing`, over the storyteller and over a network of random tables. It keeps all other
committed tokens, as a model that was trained on its own drafts does. The texts of all rates share prompts, seeds and
sub-keys, text by text. Without a key all edits that are asked for are made.

Share: of the pairs of all texts together, how many match, with standard errors over texts.
Level: share of p-values up to .05 of these texts under keys that did not mark them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgmark import Detector, Generation, WatermarkKey, generate, load_model
from dgmark.checkpoint.folder import BUILTIN
from dgmark.models.denoiser import Traits, traits_of
from dgmark.models.language_model import LanguageModel
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.hashes import mix
from dgmark_lab.evaluate.likelihood import perplexity
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from dgmark_lab.experiments.tables import with_interval
from shared import arguments, print_header, print_made_with, print_row, random_key

OTHER_KEYS = 20


@dataclass(frozen=True)
class RandomTables(ToyDenoiser):
    """A network whose logits are sums of random numbers for the tokens on the left, on the right and left of these."""

    words: int = 510
    padding: int = 0
    spread: float = 1.7
    end_ids: tuple[int, ...] = ()
    name: str = "random tables"
    tables: Tensor = field(
        default_factory=lambda: torch.randn(3, 512, 512, generator=torch.Generator().manual_seed(1)), repr=False
    )

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of every position."""
        logits = torch.zeros(*ids.shape, self.vocab_size)
        for table, offset in zip(self.tables, (1, -1, 2), strict=True):
            beside = ids.roll(offset, 1)
            logits += table[beside] * (beside != self.mask_id)[..., None]
        return self.spread * logits


@dataclass(frozen=True)
class Editing:
    """A model that asks for a deletion or an insertion at a committed place with a probability, and else keeps it.

    Attributes:
        base: the model.
        rate: the probability of each, at each place and forward; chance is a hash of the canvas and the place.
    """

    base: Any
    rate: float

    def __getattr__(self, name: str) -> Any:
        if name == "session":  # whole forwards
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def vocab_size(self) -> int:
        """The base's, and two ids."""
        return int(self.base.vocab_size) + 2

    @property
    def traits(self) -> Traits:
        """Those of a model that edits."""
        size = self.base.vocab_size
        return Traits(name=traits_of(self.base).name, confidence_source="model", edit_ids=(size, size + 1))

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of every position."""
        logits = torch.cat([self.base(ids).float(), torch.full((*ids.shape, 2), -1e4)], -1)
        committed = ids != self.base.mask_id
        logits.scatter_add_(2, ids[..., None], 1e3 * committed[..., None].float())
        places = torch.arange(ids.shape[1])
        digest = (ids * mix(places + 1)).sum(1, keepdim=True)
        chance = (mix(digest + places) % 2**31).double() / 2**31
        for number in (0, 1):
            asked = committed & (chance >= number * self.rate) & (chance < (number + 1) * self.rate)
            logits[..., self.base.vocab_size + number] += 1e5 * asked
        return logits


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.002, 0.006])
    parser.add_argument("--models", nargs="+", default=["random", "storyteller"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    titles = ["model", "rate", "deleted, inserted in 100 tokens", "without a key", "share", "less than without edits"]
    print_header([*titles, "median p", "found", "level", "perplexity; without a key", "tokens"])
    for name in args.models:
        _measure(name, args)
    print_made_with("bigram", "decoding", BUILTIN)


def _measure(name: str, args: Any) -> None:
    """Print the rows of one model."""
    base = RandomTables() if name == "random" else load_model(name, dtype="fp32", device="cpu")
    prompts: list[Any] = [[2 + n, 9 + n, 5] for n in range(args.texts)] if name == "random" else builtin_prompts()
    prompts = prompts[: args.texts]
    temperature = 0.9 if name == "random" else 0.7
    judge = None if name == "random" else LanguageModel()
    key = random_key(WatermarkKey.generate(Editing(base, 0.0), subkeys=256).spec, OTHER_KEYS)
    subkeys, detector = list(range(len(prompts))), partial(Detector, tokenizer=base.tokenizer)
    without = None
    for rate in args.rates:
        settings: dict[str, Any] = {"length": args.length, "edits": "levenshtein", "commit": "threshold"}
        settings |= {"threshold": 0.5, "temperature": temperature, "batch_size": 32}
        texts = generate(Editing(base, rate), prompts, key=key, subkey=subkeys, **settings)
        plain = generate(Editing(base, rate), prompts, key=None, **settings)
        ids = [text.token_ids for text in texts]
        own = [detector(key.subkey(number)).detect(one) for number, one in zip(subkeys, ids, strict=True)]
        share, above = _share([one.figures for one in own])
        without = (share, above) if without is None else without
        found = [detector(key).detect(one).p_value for one in ids]
        others = [detector(random_key(key.subkey(0).spec, number)) for number in range(OTHER_KEYS)]
        level = np.mean([other.detect(one).p_value <= 0.05 for other in others for one in ids])
        tokens = sum(map(len, ids))
        less = share - without[0]
        judged = "" if judge is None else _judged(judge, texts, prompts) + "; " + _judged(judge, plain, prompts)
        errors = [values.std() / len(ids) ** 0.5 for values in (above, above - without[1])]
        cells = [base.name, rate, _edits(texts), _edits(plain), f"{share:.4f} ± {errors[0]:.4f}"]
        cells += [f"{less:+.4f} ± {errors[1]:.4f}", f"{np.median(found):.0e}"]
        print_row([*cells, f"{sum(p <= 1e-4 for p in found)} of {len(ids)}", f"{level:.3f}", judged, tokens])


def _share(figures: Sequence[Any]) -> tuple[float, Any]:
    """The share of the pairs of texts that match, and how far each text moves it, times their number."""
    matched, pairs = np.array([(one.pairs_matched, one.pairs_scored) for one in figures], float).T
    share = matched.sum() / pairs.sum()
    return share, (matched - share * pairs) / pairs.mean()


def _edits(texts: Sequence[Generation]) -> str:
    """Deletions and insertions in 100 tokens."""
    tokens = sum(len(text.token_ids) for text in texts)
    made = [sum(text.trace.operation.count(kind) for text in texts) for kind in ("delete", "split")]
    return ", ".join(f"{100 * count / tokens:.1f}" for count in made)


def _judged(judge: LanguageModel, texts: Sequence[Generation], prompts: list[Any]) -> str:
    """The perplexity of texts."""
    return with_interval(perplexity(judge, [text.text for text in texts], prompts).corpus, 1)


if __name__ == "__main__":
    main()
