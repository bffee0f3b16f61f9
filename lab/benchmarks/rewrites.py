"""Measure what rewriting leaves of the mark, by the length of the text.

Run `python lab/benchmarks/rewrites.py --wordnet FOLDER --out FOLDER`. A document consists of texts of the storyteller
under one sub-key, or with --prompts of answers of the narrator to C4, 1,024 tokens together. It is rewritten whole,
then cut into equal parts: eighths hold what was written as 128 tokens, and so on. Parts of one document share a key
and a sub-key, so intervals of short texts are too narrow. Sets of texts that --out has are not made again.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dgmark import Detector, WatermarkKey, generate, load_model
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.files.outputs import atomic_write
from dgmark.models.denoiser import Denoiser
from dgmark_lab.attacks import attack
from dgmark_lab.evaluate.estimates import mean, percent
from dgmark_lab.experiments.prompt_sets import builtin_prompts, load_prompts
from dgmark_lab.experiments.spec import PROMPT_SETS
from dgmark_lab.experiments.tables import with_interval
from shared import arguments, print_header, print_made_with, print_row, random_key

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


def main() -> None:
    """Print the tables."""
    parser = arguments()
    parser.add_argument("--prompts", type=Path, help='for the narrator: JSON Lines with texts of C4 as "text"')
    parser.add_argument("--wordnet", required=True, help="folder of a WordNet database")
    parser.add_argument("--out", type=Path, required=True, help="folder of the texts")
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--nearest", type=int, nargs="+", default=[1, 0], help="the least distances of the keys")
    parser.add_argument("--subkeys", type=int, nargs="+", default=[256], help="how many the keys have, from 16 on")
    parser.add_argument("--weighted", action="store_true", help="test by weighted pairs, too")
    args = parser.parse_args()
    if min(args.subkeys) < WRITTEN_SUBKEYS:
        parser.error(f"--subkeys is below {WRITTEN_SUBKEYS}, the number that marks the texts")
    args.out.mkdir(parents=True, exist_ok=True)
    model = load_model("narrator" if args.prompts else "storyteller")
    count = args.documents * WRITING[model.tokenizer.name][0]
    asked = builtin_prompts()[:count]
    if args.prompts:
        asked = [one.text for one in load_prompts("c4", PROMPT_SETS["c4"], count, {"c4": args.prompts})]
    found = [f"found, {TOKENS // cut}" for cut in PARTS]
    print_header(["least distance", "sub-keys", "test", "rewriting", "documents", "digits, 128", *found])
    for nearest in args.nearest:
        fresh = [WatermarkKey.generate(model, nearest=nearest, subkeys=number) for number in args.subkeys]
        keys = [[random_key(one.spec, number) for number in range(KEYS)] for one in fresh]
        write = partial(_documents, model, keys[0], asked)
        written = _kept(args.out / f"{args.documents}-nearest-{nearest}.json", write)
        for name, edits in _rewritings(args.wordnet, model.tokenizer.name).items():
            change = partial(_rewritten, written, edits)
            changed = _kept(args.out / f"{args.documents}-nearest-{nearest}-{name}.json", change) if edits else written
            for reader in (None, "builtin") if args.weighted else (None,):
                for same in keys:
                    tests = [Detector(key, surprisal_model=reader) for key in same]
                    p = [np.array(list(_p_values(tests, model.tokenizer, changed, cut))) for cut in PARTS]
                    shares = [with_interval(percent(each <= RATE), 0) for each in p]
                    digits = with_interval(mean(-np.log10(p[0])), 1)
                    test = "weighted" if reader else "count"
                    print_row([nearest, same[0].num_subkeys, test, name, len(p[-1]), digits, *shares])
    print_made_with("decoding", "bigram", model.tokenizer.name)


def _rewritings(wordnet: str, tokenizer: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """The attacks of each rewriting, in order."""
    words = {"unit": "word", "tokenizer": tokenizer}
    return {
        "as written": [],
        "20 % of words replaced at random": [("substitution", {"budget": 0.2} | words)],
        "40 % replaced": [("substitution", {"budget": 0.4} | words)],
        "reordered": [("reorder", words)],
        "half of the words of WordNet replaced": [("synonyms", {"wordnet": wordnet, "budget": 0.5})],
        "all words of WordNet replaced": [("synonyms", {"wordnet": wordnet})],
        "rephrased": [("rephrase", {})],
    }


def _documents(model: Denoiser, keys: Sequence[WatermarkKey], prompts: Sequence[str]) -> Iterator[str]:
    """Texts of exactly `TOKENS` tokens; a document that remains shorter is left out."""
    texts, settings = WRITING[model.tokenizer.name]
    of_answers = np.arange(len(prompts)) // texts
    subkeys = np.random.default_rng(8).integers(WRITTEN_SUBKEYS, size=of_answers[-1] + 1)[of_answers]
    marking = [keys[number % len(keys)] for number in of_answers.tolist()]
    made = generate(model, prompts, key=marking, subkey=subkeys.tolist(), batch_size=32, **settings)
    for start in range(0, len(made), texts):
        ids = model.tokenizer.encode("\n\n".join(one.text.strip() for one in made[start : start + texts]))
        yield model.tokenizer.decode(ids[:TOKENS]) if len(ids) >= TOKENS else ""


def _rewritten(documents: Sequence[str], edits: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    for number, document in enumerate(documents):
        text = document
        for name, options in edits if document else ():
            text = attack(name, **options)(text, np.random.default_rng([number, 3]))
        yield text


def _kept(path: Path, make: Any) -> list[str]:
    """The texts of a file, which is written when all of them are made."""
    if not path.exists():
        atomic_write(path, json.dumps(list(make())))
    texts: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return texts


def _p_values(tests: Sequence[Detector], tokenizer: Tokenizer, documents: Sequence[str], parts: int) -> Iterator[float]:
    """The p-values of the parts of each document, by the test of the document's key."""
    for number, document in enumerate(documents):
        ids = np.array(tokenizer.encode(document)) if document else np.zeros(0, int)
        cut = [tokenizer.decode(part.tolist()) for part in np.array_split(ids, parts) if len(part)]
        yield from (found.p_value for found in tests[number % len(tests)].detect_many(cut))


if __name__ == "__main__":
    main()
