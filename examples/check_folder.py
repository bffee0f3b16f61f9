"""Say of each document of a folder whether it carries the mark of a key: `python check_folder.py key.json FOLDER`.

Documents other than plain text need `pip install . ./documents`. `dgmark detect --key key.json FOLDER` does the same.
"""

import sys
from pathlib import Path

import dgmark


def check(key_file: str, folder: str) -> dict[str, str]:
    """The verdict of each file, or why there is none."""
    detector = dgmark.Detector(dgmark.WatermarkKey.load(key_file), fpr=1e-4)
    found = {}
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        try:
            document = dgmark.read_document(path)
            found[path.name] = detector.detect(document.text).verdict
        except dgmark.DgmarkError as error:
            found[path.name] = f"not tested: {error}"
    return found


if __name__ == "__main__":
    for name, verdict in check(*sys.argv[1:]).items():
        print(f"{verdict:14} {name}")
