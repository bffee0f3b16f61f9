"""How texts of one template, which share their pairs, fare together under one key.

    python lab/benchmarks/templates.py [--keys 800] [--texts 5]

So many unmarked texts of each template, of 256 tokens, are tested under each of so many keys, as a count and weighed by
the built-in language model of the storyteller. The table has the share of all p-values of at most .01, the largest
share under one key, and under how many keys all texts of the template are at .01.
"""

import random

import numpy as np
import torch

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.bigram import BigramTest
from dgmark.detection.reader import ScoredIds
from level import csv, json_rows, markdown
from shared import arguments, print_header, print_made_with, print_row, random_key

TEMPLATES = {"CSV": csv, "JSON": json_rows, "Markdown table": markdown}
TOKENS, LEVEL = 256, 0.01


def main() -> None:
    """Measure, and print the table."""
    parser = arguments()
    parser.add_argument("--keys", type=int, default=800)
    parser.add_argument("--texts", type=int, default=5, help="texts of each template")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = LanguageModel(device="cpu", dtype="fp32")
    reader = Detector(WatermarkKey.generate(subkeys=1), surprisal_model=model).reader
    spec = WatermarkKey.generate(rule="bigram", subkeys=1).spec
    print(f"{asked.texts} texts of each template under {asked.keys} keys\n")
    print_header(["template", "test", "p <= .01", "most under one key", "keys with all"])
    for name, make in TEMPLATES.items():
        texts = [make(random.Random(f"{name} {number}")) for number in range(asked.texts)]
        cut = [text[: reader.tokenizer.encode_with_offsets(text).offsets[:TOKENS][-1][1]] for text in texts]
        weighted = [reader.read(text) for text in cut]
        tests = {"count": [ScoredIds(one.ids, one.positions) for one in weighted], "weighted": weighted}
        keys = [random_key(spec, number) for number in range(asked.keys)]
        for test, scored in tests.items():
            found = np.array([[BigramTest(key, one).p_value() <= LEVEL for one in scored] for key in keys])
            under_one = found.mean(axis=1)
            print_row([name, test, f"{found.mean():.4f}", f"{under_one.max():.2f}", int(found.all(axis=1).sum())])
    print_made_with("bigram")


if __name__ == "__main__":
    main()
