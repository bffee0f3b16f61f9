"""Run the attempts in turn until the time is over, and print what failed and a table.

An attempt is told by its name, its number and the seed: `python -m soak --seed 0 --only kill --number 3` repeats one.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from soak import attempts, fuzz, service
from soak.bench import Bench

Attempt = Callable[[Bench, random.Random], list[str]]

# name -> the attempt, and how often it is made in one round; 25 rounds fuzz 250 files
ATTEMPTS: dict[str, tuple[Attempt, int]] = {
    "race": (attempts.race, 1),
    "kill": (attempts.kill, 1),
    "workers": (attempts.workers, 1),
    "disk": (attempts.disk, 1),
    "bomb": (attempts.bomb, 1),
    "slow clients": (service.slow_clients, 1),
    "reload": (service.reload, 1),
    "fuzzed key": (fuzz.key_file, 3),
    "changed report": (fuzz.signed_report, 2),
    "fuzzed tokenizer": (fuzz.tokenizer, 2),
    "fuzzed checkpoint": (fuzz.checkpoint, 1),
    "fuzzed rows": (fuzz.json_lines, 2),
}


def main() -> None:
    """Make attempts; exit with 1 if one failed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1800, help="stop after so many seconds")
    parser.add_argument("--rounds", type=int, default=25, help="stop after so many rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ATTEMPTS, action="append", help="make only these attempts")
    parser.add_argument("--number", type=int, help="make only the attempt of this number")
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.seconds:g} s, {args.rounds} rounds at most", flush=True)
    with tempfile.TemporaryDirectory(prefix="dgmark-soak-") as folder:
        bench = Bench(Path(folder))
        made, failed = _run(bench, args)
    print("\n| attempt | made | failed |\n|---|---|---|")
    for name in made:
        print(f"| {name} | {made[name]} | {failed[name]} |")
    print(f"| all | {made.total()} | {failed.total()} |")
    sys.exit(1 if failed else 0)


def _run(bench: Bench, args: argparse.Namespace) -> tuple[Counter[str], Counter[str]]:
    """Return, by name, how many attempts were made, and how many failed."""
    made: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    names = args.only or list(ATTEMPTS)
    turns = [name for name in names for _ in range(ATTEMPTS[name][1])] * args.rounds
    numbers = {name: itertools.count() for name in names}
    assert bench.marked  # what every attempt needs is made before the clock starts
    until = time.monotonic() + args.seconds
    for name in turns:
        number = next(numbers[name])
        if time.monotonic() > until or (args.number is not None and number > args.number):
            break
        if args.number is not None and number != args.number:
            continue
        problems = ATTEMPTS[name][0](bench, random.Random(f"{args.seed}/{name}/{number}"))
        made[name] += 1
        if problems:
            failed[name] += 1
            print(f"FAILED {name} {number}", *problems, sep="\n  ", flush=True)
    return made, failed


if __name__ == "__main__":
    main()
