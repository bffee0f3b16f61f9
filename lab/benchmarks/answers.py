"""Answers to one prompt: how alike they are without a mark, under one key and with sub-keys, and whether a mark shows.

Figures are means over prompts, with bootstrap intervals. Both drifts compare a service with the unmarked model at the
same temperature; the row without a mark shows what chance does. The first is that of UWBench (Wu et al., ICLR 2026,
arXiv 2509.24048; "SPMG"): the mean absolute difference between the two means of a figure over the answers to a prompt,
here the judge's nats a token. The second is how much larger a share of their pairs two answers have in common if they
come from one source. Each p is a permutation test, which needs no key: without a mark, all splits are equally likely.
"""

import argparse
from itertools import chain, pairwise

import numpy as np

from dgmark import WatermarkKey, generate
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.experiments.estimates import mean
from dgmark_lab.experiments.tables import with_interval
from keys_and_tables import RUNS, print_header, print_made_with, print_row, random_key
from rules import SETTINGS, _model, _nats, _prompts

Answers = list[list[tuple[list[int], float]]]  # token ids and nats a token of each answer to each prompt


def main() -> None:
    """Print a row for each way to mark, at each temperature."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=SETTINGS, default="storyteller")
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0, 0.5])
    parser.add_argument("--subkeys", type=int, nargs="+", default=[1, 256], help="1: one key for all answers")
    for name, default in (("--prompts", 6), ("--answers", 8), ("--length", 128)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    print_header(["keys", "T", "distinct-2", "of all", "overlap", "repeated 4-grams", "drift", "drift of pairs"])
    for temperature in args.temperature:
        reference = _answers(args, None, temperature, seed=10**6)
        for keys in (0, *args.subkeys):
            spec = WatermarkKey.generate(_model(args.model), rule="bigram", subkeys=keys or 1).spec
            answers = _answers(args, random_key(spec, 0) if keys else None, temperature, seed=0)
            print_row([keys or "unmarked", temperature, *_figures(answers, reference)])
    print_made_with("decoding", "bigram", args.model, *(["judge"] if args.model == "storyteller" else []))


def _answers(args: argparse.Namespace, key: WatermarkKey | None, temperature: float, seed: int) -> Answers:
    prompts = [prompt for prompt in _prompts(args.model)[: args.prompts] for _ in range(args.answers)]
    settings = {**SETTINGS[args.model], "length": args.length, "temperature": temperature, "pad": True}
    made = generate(_model(args.model), prompts, key=key, seed=seed, batch_size=16, **settings)
    nats = [float(each.mean()) if len(each) else 0.0 for each in _nats(args.model, made, RUNS / "rules")]
    answers = [(one.token_ids, of_one) for one, of_one in zip(made, nats, strict=True)]
    return [answers[i : i + args.answers] for i in range(0, len(answers), args.answers)]


def _overlaps(answers: list[tuple[list[int], float]]) -> np.ndarray:
    pairs = [set(pairwise(ids)) for ids, _ in answers]
    shares = np.array([[len(a & b) / max(min(len(a), len(b)), 1) for b in pairs] for a in pairs])
    return shares * (1 - np.eye(len(pairs)))  # an answer is not compared with itself


def _figures(service: Answers, model: Answers) -> list[str]:
    n, both = len(service[0]), [[*ours, *theirs] for ours, theirs in zip(service, model, strict=True)]
    ids = [[each for each, _ in group] for group in service]
    overlaps, nats = np.array([_overlaps(group) for group in both]), np.array([[x for _, x in group] for group in both])
    figures = [
        [np.mean([distinct_ngrams(each, 2) for each in group]) for group in ids],
        [len(set(pairs)) / max(len(pairs), 1) for pairs in ([*chain(*map(pairwise, group))] for group in ids)],
        overlaps[:, :n, :n].sum((1, 2)) / (n * (n - 1)),
        [np.mean([repeated_ngrams(each) for each in group]) for group in ids],
    ]
    splits = np.tile(np.repeat([1.0, -1.0], n), (10_001, len(both), 1))  # the first one is the true one
    splits[1:] = np.random.default_rng(0).permuted(splits[1:], axis=2)
    of_nats = np.abs(np.einsum("spi,pi->sp", splits, nats)) / n
    total, signed = overlaps.sum((1, 2)), np.einsum("spi,pij,spj->sp", splits, overlaps, splits, optimize=True)
    of_pairs = (total + signed) / (4 * n * (n - 1)) - (total - signed) / (4 * n * n)  # within a source, less across
    p = [np.mean(drift.mean(1) >= drift[0].mean() - 1e-12) for drift in (of_nats, of_pairs)]
    *cells, one, two = (with_interval(mean(np.array(each)), 3) for each in (*figures, of_nats[0], of_pairs[0]))
    return [*cells, f"{one} (p {p[0]:.1g})", f"{two} (p {p[1]:.1g})"]


if __name__ == "__main__":
    main()
