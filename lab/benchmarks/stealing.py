"""Measure what an adversary learns about a key from marked texts, and how well this serves to forge and scrub the mark.

Run `python lab/benchmarks/stealing.py MARKED.jsonl ... --key KEY --unmarked UNMARKED.jsonl`, with rows of `dgmark
generate` by the built-in model. For each number of texts the same model writes texts that are steered by what was
learnt from them, and marked texts are scrubbed; both are read as text by the real detector. The thief knows the method:
he draws by the bits that he believes in, and where he knows nothing there is no bit. A thief need not be unbiased, so
he may have a --bias. Under a key with sub-keys he counts over all responses; or he clusters them by sub-key, and takes
in turns the sub-keys that explain their responses best; or he knows which of them share the most frequent sub-key.
"Copied" is the share of the forged tokens that stand in runs of four of a text that he learnt from.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark import Detector, WatermarkKey, load_model
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.decode import DecodeConfig, decode
from dgmark.decode.marks.bigram import BigramSide
from dgmark.decode.marks.keyed_side import side_of_rows
from dgmark.decode.marks.position import PositionSide
from dgmark.decode.marks.rules import DecodeSide, Places
from dgmark.models.load import NetworkDenoiser
from dgmark.rows.jsonl import read_good_rows
from dgmark_lab.attacks.clustering import subkey_shares
from dgmark_lab.attacks.stealing import StolenKey, StolenPairs, StolenPositions, nothing_of, residue_words, scrub
from dgmark_lab.attacks.text_edits import decode as text_of
from dgmark_lab.attacks.text_edits import ordinary_ids
from dgmark_lab.evaluate.estimates import percent
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from dgmark_lab.experiments.tables import with_interval
from shared import arguments, print_header, print_made_with, print_row

THIEVES = ("counts", "clusters", "knows")
LENGTH = 256
MIN_TOKENS = 100
RATE = 1e-4
RUN = 4
CLUSTERS = 8
SCRUBBED = (0.1, 0.2, 0.3)
Ids = Int[np.ndarray, " n"]


class Row(NamedTuple):
    """A text of a thief: its prompt, its tokens, as they are read from its text, and its sub-key."""

    prompt: str
    ids: Ids
    subkey: int


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("marked", type=Path, nargs="+")
    parser.add_argument("--unmarked", type=Path, nargs="+", required=True, help="rows without this key's mark")
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--learn", type=int, nargs="+", default=[1, 10, 100, 1000], help="texts to learn from")
    parser.add_argument("--texts", type=int, default=64, help="texts to forge, to the last prompts, not learnt from")
    parser.add_argument("--thief", choices=THIEVES, default="counts", help="what the thief does with sub-keys")
    parser.add_argument("--temperature", type=float, default=0.5, help="of the forger")
    parser.add_argument("--bias", type=float, default=0.0, help="of the forger")
    args = parser.parse_args()
    key, model = WatermarkKey.load(args.key), load_model()
    assert isinstance(model, NetworkDenoiser)
    prompts = builtin_prompts()[-args.texts :]
    rows = [row for path in args.marked for row in _rows(path, model.tokenizer)]
    held_out = [row for row in rows if row.prompt in prompts][: args.texts]
    learnt = [row for row in rows if row.prompt not in prompts]
    if not learnt:
        parser.error("no text answers another prompt than those of the forgeries: give more rows, or fewer --texts")
    common = Counter(row.subkey for row in learnt).most_common(1)[0][0]
    if args.thief == "knows":
        learnt = [row for row in learnt if row.subkey == common]
    learnt = [learnt[i] for i in np.random.default_rng(0).permutation(len(learnt))]
    plain = [row for path in args.unmarked for row in _rows(path, model.tokenizer)]
    unmarked = [row.ids for row in plain if row.prompt not in prompts]
    tests = [row.ids for row in plain if row.prompt in prompts]
    law = _law(unmarked, model.tokenizer)
    print_header(["texts", "right", "forged", "median p", "copied", *(f"scrubbed {share:g}" for share in SCRUBBED)])
    for number in (0, *(number for number in args.learn if number <= len(learnt))):
        beliefs = [(nothing_of(key), common)]
        if number:
            beliefs = _learnt(beliefs[0][0], learnt[:number], unmarked, key, clusters=args.thief == "clusters")
        stolen = beliefs[0][0]
        shares = [
            one.right(key if key.num_subkeys == 1 else key.subkey(subkey), ids)
            for one, subkey in beliefs
            for ids in tests
        ]
        cells: list[Any] = [number, f"{np.mean(shares):.3f}" if shares else "", "", "", ""]
        if number:
            settings = {"temperature": args.temperature, "bias": args.bias}
            turns = [(one, prompts[turn :: len(beliefs)]) for turn, (one, _) in enumerate(beliefs)]
            texts = [text for one, asked in turns for text in _forged(model, key, one, asked, **settings)]
            p = _p_values(key, texts)
            copied = _copied(model.tokenizer.encode_batch(texts), [row.ids.tolist() for row in learnt[:number]])
            cells[2:] = [with_interval(percent(p <= RATE), 0), f"{np.median(p):.0e}", f"{copied:.2f}"]
        print_row([*cells, *(_scrubbed(model.tokenizer, key, stolen, held_out, law, share) for share in SCRUBBED)])
    print_made_with("decoding", key.spec.rule, "storyteller")


def _learnt(
    blank: StolenKey, rows: Sequence[Row], unmarked: Sequence[Ids], key: WatermarkKey, *, clusters: bool
) -> list[tuple[StolenKey, int]]:
    """What a thief learns, and the sub-key that he has learnt most of; of clusters, the best ones."""
    marked, subkeys = [row.ids for row in rows], np.array([row.subkey for row in rows])
    if not clusters:
        return [(blank.learn(marked, unmarked), Counter(subkeys.tolist()).most_common(1)[0][0])]
    assert isinstance(blank, StolenPairs)
    shares, evidence = subkey_shares(blank, marked, unmarked, key.num_subkeys, np.random.default_rng(0))
    best = [shares[:, column] for column in np.argsort(-evidence)[:CLUSTERS].tolist()]
    return [(blank.learn(marked, unmarked, each), int(np.bincount(subkeys, each).argmax())) for each in best]


def _rows(path: Path, tokenizer: Tokenizer) -> list[Row]:
    """Read the texts of rows, encoded from text as an adversary would."""
    rows = list(read_good_rows(str(path)))
    encoded = tokenizer.encode_batch([row["text"] for row in rows])
    read = (
        Row(row["prompt"], np.array(ids[:LENGTH], dtype=np.int64), row.get("subkey") or 0)
        for ids, row in zip(encoded, rows, strict=True)
    )
    return [row for row in read if len(row.ids) >= MIN_TOKENS]


def _law(texts: Sequence[Ids], tokenizer: Tokenizer) -> Float[np.ndarray, " vocab"]:
    """The share of each ordinary token in texts."""
    counts = np.bincount(np.concatenate(texts), minlength=tokenizer.vocab_size).astype(float)
    ordinary = np.zeros(len(counts), dtype=bool)
    ordinary[ordinary_ids(tokenizer)] = True
    shares: Float[np.ndarray, " vocab"] = counts * ordinary / counts[ordinary].sum()
    return shares


def _forged(
    model: NetworkDenoiser, key: WatermarkKey, stolen: StolenKey, prompts: Sequence[str], **settings: float
) -> list[str]:
    """Texts that the model writes, steered by stolen beliefs."""
    ends = [model.tokenizer.encode(prompt)[-16:] for prompt in prompts]
    batch = torch.tensor([each for each in ends if len(each) == 16])
    config = DecodeConfig.of(model, length=LENGTH, cache="dual", **settings)
    rule = believed_rule(stolen, key, len(batch))
    responses = decode(model, batch, config, rule, list(range(len(batch))))
    return [model.tokenizer.decode(each.token_ids) for each in responses]


def _copied(texts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]]) -> float:
    """The share of the tokens of texts that stand in a run of `RUN` tokens of a source."""
    runs = {tuple(ids[at : at + RUN]) for ids in sources for at in range(len(ids) - RUN + 1)}
    copied, tokens = 0, 0
    for ids in texts:
        taken = np.zeros(len(ids), dtype=bool)
        for at in range(len(ids) - RUN + 1):
            taken[at : at + RUN] |= tuple(ids[at : at + RUN]) in runs
        copied, tokens = copied + int(taken.sum()), tokens + len(ids)
    return copied / tokens


def believed_rule(stolen: StolenKey, key: WatermarkKey, texts: int) -> DecodeSide:
    """The rule of a key, with the bits that the thief believes in."""

    def believed(words: Tensor) -> Tensor:
        """1 or -1 for words that are believed to match, or not to; 0 where nothing is known."""
        return torch.from_numpy(np.sign(stolen.believed(words.numpy()))).to(torch.int8)

    class BelievedPairs(BigramSide):
        def signs_of_pairs(self, words: Tensor, rows: Tensor) -> Tensor:  # noqa: ARG002
            return believed(words)

    class BelievedPositions(PositionSide):
        def signs(self, tokens: Tensor, places: Places) -> Tensor:
            assert isinstance(stolen, StolenPositions)
            code = torch.tensor(stolen.code, dtype=torch.long)
            words = residue_words(tokens, code[places.positions % len(code)][:, None])
            return torch.where(believed(words) > 0, 1, -1).to(torch.int8)[:, :, None]

    rule = side_of_rows([key.for_text()] * texts, "cpu")
    assert isinstance(rule, BigramSide | PositionSide)  # `nothing_of` has refused keys of other rules
    kinds: dict[str, type[DecodeSide]] = {"bigram": BelievedPairs, "position": BelievedPositions}
    given = {field.name: getattr(rule, field.name) for field in fields(rule) if field.init}
    return kinds[key.spec.rule](**given)


def _scrubbed(
    tokenizer: Tokenizer,
    key: WatermarkKey,
    stolen: StolenKey,
    rows: Sequence[Row],
    law: Float[np.ndarray, " vocab"],
    share: float,
) -> str:
    """The share of marked texts that are no longer found after a share of their tokens is replaced."""
    if not rows:
        return ""
    edited = [scrub(row.ids, stolen, share, law, np.random.default_rng([number, 7])) for number, row in enumerate(rows)]
    p = _p_values(key, [text_of(tokenizer, ids.tolist()) for ids in edited])
    return with_interval(percent(p > RATE), 0)


def _p_values(key: WatermarkKey, texts: list[str]) -> Float[np.ndarray, " texts"]:
    return np.array([found.p_value for found in Detector(key).detect_many(texts)])


if __name__ == "__main__":
    main()
