#!/bin/sh
# Tries what an installed dgmark can do: deploy/smoke.sh [PYTHON], an environment's interpreter (python3 by default).
# It makes its own tokenizer, keys and texts in a temporary folder, and needs no network and no checkout. A step whose
# packages are not installed is skipped. A step that fails is named, with the last lines of what it printed.
# Exit codes: 0, each step that was tried works; 1, a step failed; 2, dgmark cannot be started at all.

python=$(command -v "${1:-python3}") || { echo "no interpreter ${1:-python3}: name that of the environment" >&2; exit 2; }
case $python in /*) ;; *) python=$PWD/$python ;; esac
export PYTHONSAFEPATH=1 HF_HUB_OFFLINE=1 NO_COLOR=1

folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cd "$folder" || exit 2

dgmark() { "$python" -m dgmark "$@"; }

# step NAME FUNCTION MODULE...: calls the function, which ends at its first command that fails, if the modules are there
step() {
    name=$1 function=$2
    shift 2
    for module; do
        if ! "$python" -c "import sys, importlib.util as util; sys.exit(util.find_spec('$module') is None)"; then
            echo "skipped  $name: $module is not installed"
            return
        fi
    done
    (set -e; "$function") > printed 2>&1 < /dev/null
    if [ $? -eq 0 ]; then
        echo "ok       $name"
    else
        echo "FAILED   $name"
        tail -n 15 printed | sed 's/^/         /'
        failed=1
    fi
}

# expect VERDICTS FILE: the verdicts on the file's texts, at a rate of one false alarm in a million
expect() {
    dgmark detect --key key.json --fpr 1e-6 --json "$2" > rows || return
    found=$(sed -n 's/.*"verdict": *"\([a-z_]*\)".*/\1/p' rows | paste -s -d ' ' -)
    [ "$found" = "$1" ] || { echo "$2 is $found, and should be $1"; return 1; }
}

# --- the steps ---

make_key() {
    "$python" - << 'END'
import json
import string
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

words, letters = Path("unmarked.txt").read_text().split(), string.ascii_letters + string.punctuation
tokens = dict.fromkeys(["[UNK]", "[MASK]", *words, *letters, *(f"##{one}" for one in letters)])
ids = {token: number for number, token in enumerate(tokens)}
tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece()
Path("model").mkdir()
tokenizer.save("model/tokenizer.json")
shape = {"model_type": "llada", "vocab_size": len(ids), "mask_token_id": 1}
Path("model/config.json").write_text(json.dumps(shape))
END
    dgmark keygen key.json --model model --subkeys 1
}

# A text is marked by choosing, for each word, the one of six that gives the largest z-score.
check_text() {
    "$python" - << 'END'
import random
from pathlib import Path
import dgmark

words, draw = Path("unmarked.txt").read_text().split(), random.Random(1)
detector, text = dgmark.Detector(dgmark.WatermarkKey.load("key.json")), ["The"]
while len(text) < 100:
    tried = [" ".join([*text, word]) for word in draw.sample(words, 6)]
    text = max(tried, key=lambda one: detector.detect(one).z_score).split()
Path("marked.txt").write_text(" ".join(text))
END
    expect watermarked marked.txt
    expect not_detected unmarked.txt
}

check_table() {
    { echo id,text; echo "a,\"$(cat marked.txt)\""; echo "b,\"$(cat unmarked.txt)\""; } > table.csv
    expect "watermarked not_detected" table.csv
}

check_documents() {
    echo "<html><body><p>$(cat marked.txt)</p></body></html>" > page.html
    {
        echo '%PDF-1.4'
        echo '1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj'
        echo '2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj'
        echo '3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>> endobj'
        printf 'BT /F 11 Tf 14 TL 50 750 Td\n' > page
        fold -s -w 70 marked.txt | sed 's/ *$//; s/.*/(&) Tj T*/' >> page
        printf '\nET\n' >> page
        echo "4 0 obj <</Length $(wc -c < page)>> stream"
        cat page
        echo 'endstream endobj'
        echo '5 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj'
        echo 'trailer <</Root 1 0 R/Size 6>>'
        echo '%%EOF'
    } > page.pdf
    expect watermarked page.html
    expect watermarked page.pdf
}

check_parquet() {
    "$python" - << 'END'
from pathlib import Path
import pyarrow
from pyarrow import parquet

texts = [Path(f"{name}.txt").read_text() for name in ("marked", "unmarked")]
parquet.write_table(pyarrow.table({"id": ["a", "b"], "text": texts}), "rows.parquet")
END
    dgmark detect --key key.json --fpr 1e-6 --out checked.parquet rows.parquet
    "$python" - << 'END'
from pyarrow import parquet

rows = parquet.read_table("checked.parquet")
(column,) = [name for name in rows.column_names if name.endswith("verdict")]
assert rows[column].to_pylist() == ["watermarked", "not_detected"], rows.to_pydict()
END
}

check_report() {
    dgmark report keygen sign.json
    dgmark report jwks sign.json > jwks.json
    dgmark detect --key key.json --report report.html --sign sign.json marked.txt
    dgmark report verify report.html --jwks jwks.json
    sed 's/</<!-- changed --></' report.html > changed.html
    if dgmark report verify changed.html --jwks jwks.json; then
        echo "a report that was changed is taken for one that was not"
        return 1
    fi
}

write_text() {
    dgmark keygen storyteller.json --subkeys 1
    dgmark generate --key storyteller.json --length 128 "Once upon a time" > written.txt
    dgmark detect --key storyteller.json --check written.txt
}

serve_check() {
    mkdir -m 700 keys
    cp key.json keys/main.json
    "$python" -m dgmark serve --keys keys --port 0 --workers 1 > served 2>&1 &
    trap 'kill "$!" 2> /dev/null || true; cat served' EXIT
    "$python" - "$!" << 'END'
import json, os, re, sys, time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen


def ask(path, body=None):
    """The answer of the service, or None while it does not answer."""
    port = re.search(r"running on http://127\.0\.0\.1:(\d+)", Path("served").read_text())
    request = port and Request(f"http://127.0.0.1:{port[1]}{path}", body, {"content-type": "application/json"})
    try:
        return request and urlopen(request, timeout=60).read()
    except URLError:
        return None


until = time.monotonic() + 300
while ask("/readyz") is None:
    os.kill(int(sys.argv[1]), 0)  # an error if the service has ended
    assert time.monotonic() < until, "the service is not ready after five minutes"
    time.sleep(0.2)
for name, verdict in (("marked", "watermarked"), ("unmarked", "not_detected")):
    text = Path(f"{name}.txt").read_text()
    answer = json.loads(ask("/v1/detect", json.dumps({"text": text, "fpr": 1e-6}).encode()))
    assert answer["verdict"] == verdict, answer
END
    kill "$!"
    wait "$!" || { echo "the service ended with exit code $?"; return 1; }
}

dgmark --version || { echo "dgmark cannot be started with $python" >&2; exit 2; }
cat > unmarked.txt << 'END'
The ship left the harbour before dawn, when the wind had turned and the rain was over. Nobody on the quay had slept, for
they knew that the old captain would wait no longer than he must. My sister waved until the last sail was gone behind
the cliffs; then she took the lamp, shut the door of our house and began to write. What she wrote that morning I found
only years later, in a box under the stairs, among letters, dried flowers and a map of islands which no chart has ever
shown. It told of gold, as such stories do, but also of a garden, two brothers and a promise that one of them broke.
END
failed=0
step "make a key" make_key
step "check texts" check_text
step "check a table" check_table
step "check documents" check_documents dgmark_documents
step "check and write Parquet" check_parquet pyarrow fsspec
step "sign and verify a report" check_report jinja2 joserfc
step "write a text" write_text torch transformers dgmark_builtin
step "serve a check" serve_check dgmark_service
exit "$failed"
