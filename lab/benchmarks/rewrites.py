"""Measure what rewriting leaves of the mark, by the length of the text.

Run `python lab/benchmarks/rewrites.py --wordnet FOLDER`. A document consists of texts of the storyteller
under one sub-key, or with --prompts of answers of the narrator to C4, 1,024 tokens together. It is rewritten whole,
then cut into equal parts: eighths hold what was written as 128 tokens, and so on. Parts of one document share a key
and a sub-key, so intervals of short texts are too narrow. Texts that --out has are not made again.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgmark import Detector, WatermarkKey, generate, load_model
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.denoiser import Denoiser
from dgmark.rows.item import Row
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.spec import spec_as
from dgmark_lab.attacks import attack
from dgmark_lab.evaluate.estimates import mean, percent
from dgmark_lab.experiments.prompt_sets import builtin_prompts, load_prompts
from dgmark_lab.experiments.spec import PROMPT_SETS
from dgmark_lab.experiments.store import Kind, Store, digest
from dgmark_lab.experiments.tables import with_interval
from shared import RUNS, arguments, print_header, print_made_with, print_row, random_key

TOKENS = 1024
PARTS = (8, 4, 2, 1)
RATE = 1e-4
KEYS = 4
# the bits of a sub-key do not depend on their number, so that the texts serve keys of 16 sub-keys and more
WRITTEN_SUBKEYS = 16
# how many texts a document is made of, and how they are written
WRITING: dict[str, tuple[int, dict[str, Any]]] = {
    "storyteller": (5, {"length": 256, "cache": "dual", "temperature": 0.55, "pad": True}),
    "narrator": (12, {"length": 128, "cache": "prefix", "temperature": 0.8, "top_p": 0.9, "chat": True, "pad": True}),
}
# the attacks of each rewriting, in order
REWRITINGS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "as written": [],
    "20 % replaced at random": [("substitution", {"budget": 0.2})],
    "40 % replaced at random": [("substitution", {"budget": 0.4})],
    "reordered": [("reorder", {})],
    "30 % replaced, reordered": [("substitution", {"budget": 0.3}), ("reorder", {})],
    "40 % replaced, reordered": [("substitution", {"budget": 0.4}), ("reorder", {})],
    "half of the synonyms": [("synonyms", {"budget": 0.5})],
    "all synonyms": [("synonyms", {})],
    "rephrased": [("rephrase", {})],
}


def main() -> None:
    """Print the tables."""
    parser = arguments()
    parser.add_argument("--prompts", type=Path, help='for the narrator: JSON Lines with texts of C4 as "text"')
    parser.add_argument("--wordnet", required=True, help="folder of a WordNet database")
    parser.add_argument("--out", type=Path, default=RUNS, help="folder of the texts")
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--nearest", type=int, nargs="+", default=[1, 0], help="the least distances of the keys")
    parser.add_argument("--subkeys", type=int, nargs="+", default=[256], help="how many the keys have, from 16 on")
    parser.add_argument("--rewritings", nargs="+", choices=REWRITINGS, default=REWRITINGS, help="rows to print")
    parser.add_argument("--weighted", action="store_true", help="test by weighted pairs, too")
    args = parser.parse_args()
    if min(args.subkeys) < WRITTEN_SUBKEYS:
        parser.error(f"--subkeys is below {WRITTEN_SUBKEYS}, the number that marks the texts")
    store, model = Store(args.out), load_model("narrator" if args.prompts else "storyteller")
    count = args.documents * WRITING[model.tokenizer.name][0]
    asked = builtin_prompts()[:count]
    if args.prompts:
        asked = [one.text for one in load_prompts("c4", PROMPT_SETS["c4"], count, {"c4": args.prompts})]
    words = {"unit": "word", "tokenizer": model.tokenizer.name}
    given: dict[str, dict[str, Any]] = {"synonyms": {"wordnet": args.wordnet}, "rephrase": {}}
    found = [f"found, {TOKENS // cut}" for cut in PARTS]
    print_header(["least distance", "sub-keys", "test", "rewriting", "documents", "digits, 128", *found])
    for nearest in args.nearest:
        fresh = [WatermarkKey.generate(model, nearest=nearest, subkeys=number) for number in args.subkeys]
        keys = [[random_key(one.spec, number) for number in range(KEYS)] for one in fresh]
        written = _documents(store, model, keys[0], asked)
        for name in args.rewritings:
            edits = [(each, given.get(each, words) | options) for each, options in REWRITINGS[name]]
            changed = _rewritten(store, written, edits) if edits else written
            for reader in (None, "builtin") if args.weighted else (None,):
                for same in keys:
                    tests = [Detector(key, surprisal_model=reader) for key in same]
                    p = [np.array(list(_p_values(tests, model.tokenizer, changed, cut))) for cut in PARTS]
                    shares = [with_interval(percent(each <= RATE), 0) for each in p]
                    digits = with_interval(mean(-np.log10(p[0])), 1)
                    test = "weighted" if reader else "count"
                    print_row([nearest, same[0].num_subkeys, test, name, len(p[-1]), digits, *shares])
    print_made_with("decoding", "bigram", model.tokenizer.name)


def _documents(store: Store, model: Denoiser, keys: Sequence[WatermarkKey], prompts: Sequence[str]) -> list[str]:
    """Texts of exactly `TOKENS` tokens; one that remains shorter is empty."""
    texts, settings = WRITING[model.tokenizer.name]
    subkeys = np.random.default_rng(8).integers(WRITTEN_SUBKEYS, size=len(prompts) // texts).tolist()

    def make(numbers: list[int]) -> list[Row]:
        marking = [keys[number // texts % KEYS] for number in numbers]
        payloads = [subkeys[number // texts] for number in numbers]
        asked = [prompts[number] for number in numbers]
        options = settings | {"seed": numbers[0], "batch_size": len(numbers)}
        return [{"text": one.text.strip()} for one in generate(model, asked, key=marking, subkey=payloads, **options)]

    same = {"prompts": digest(list(prompts)), "nearest": spec_as(BigramSpec, keys[0]).nearest, "settings": settings}
    answers = _kept(store, "texts", same, len(prompts), make, batch=32)
    documents = ["\n\n".join(answers[at : at + texts]) for at in range(0, len(prompts), texts)]
    cut = [ids[:TOKENS] if len(ids) >= TOKENS else [] for ids in model.tokenizer.encode_batch(documents)]
    return [model.tokenizer.decode(ids) for ids in cut]


def _rewritten(store: Store, documents: Sequence[str], edits: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    def make(numbers: list[int]) -> list[Row]:
        (number,), text = numbers, documents[numbers[0]]
        for name, options in edits if text else ():
            text = attack(name, **options)(text, np.random.default_rng([number, 3]))
        return [{"text": text}]

    return _kept(store, "attacked", {"documents": digest(list(documents)), "edits": edits}, len(documents), make, 1)


def _kept(
    store: Store, kind: Kind, same: Row, count: int, make: Callable[[list[int]], list[Row]], batch: int
) -> list[str]:
    """The texts that the store has, after those that it lacks are made."""
    todo, recipe = {str(number): number for number in range(count)}, digest(same)
    store.complete(kind, recipe, {"recipe": recipe}, todo, make, batch=batch)
    rows = store.read(kind, recipe, todo)
    return [rows[number]["text"] for number in todo]


def _p_values(tests: Sequence[Detector], tokenizer: Tokenizer, documents: Sequence[str], parts: int) -> Iterator[float]:
    """The p-values of the parts of each document, by the test of the document's key."""
    for number, document in enumerate(documents):
        ids = np.array(tokenizer.encode(document)) if document else np.zeros(0, int)
        cut = [tokenizer.decode(part.tolist()) for part in np.array_split(ids, parts) if len(part)]
        yield from (found.p_value for found in tests[number % len(tests)].detect_many(cut))


if __name__ == "__main__":
    main()
