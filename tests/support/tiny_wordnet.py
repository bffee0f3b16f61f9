"""A WordNet of three synsets in Princeton's file format, so that nltk's own reader can be tested without its data."""

from pathlib import Path

_POS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
# word groups that mean the same
SYNSETS = {"noun": [("king", "monarch"), ("sea", "ocean")], "verb": [("answer", "reply")], "adj": [], "adv": []}


def write_wordnet(folder: Path) -> None:
    """Write corpora/wordnet below `folder`, as nltk finds it."""
    root = folder / "corpora" / "wordnet"
    root.mkdir(parents=True)
    (root / "lexnames").write_text("".join(f"{n:02d}\tname{n}\t1\n" for n in range(45)))
    (root / "cntlist.rev").write_text("")
    (root / "index.sense").write_text("")
    for name, letter in _POS.items():
        data, index = "", dict[str, str]()
        for words in SYNSETS[name]:
            offset = f"{len(data.encode()):08d}"
            frames = " 01 + 02 00" if letter == "v" else ""
            listed = " ".join(f"{word} 0" for word in words)
            data += f"{offset} 03 {letter} {len(words):02x} {listed} 000{frames} | a gloss  \n"
            index |= dict.fromkeys(words, offset)
        (root / f"data.{name}").write_text(data)
        lines = [f"{word} {letter} 1 0 1 0 {offset}  \n" for word, offset in sorted(index.items())]
        (root / f"index.{name}").write_text("".join(lines))
        (root / f"{name}.exc").write_text("")
