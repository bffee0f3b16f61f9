"""What each set of distributions can do alone: Python sees these, with what they depend on, and no other package.

A folder stands for the environment: it has links to the packages that pip would install there.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dgmark.checkpoint.folder import builtin_folder
from support.documents import CORPUS
from support.install_lines import install_lines

ROOT = Path(__file__).parents[1]
PROJECTS = {
    folder: tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in (".", "./builtin", "./documents", "./lab", "./service")
}
SOURCES = {"dgmark": "src", **{f"dgmark-{name}": f"{name}/src" for name in ("builtin", "documents", "lab", "service")}}


def needed(requirements: list[str]) -> set[str]:
    """The names of these distributions and of all that they depend on."""
    found: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in map(Requirement, requirements) for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for one in map(Requirement, distribution(name).requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += ((one.name, own) for own in ("", *one.extras))
    return {name for name, _ in found}


class Environment:
    """What `pip install` of some requirements would make.

    Args:
        folder: where the links are put.
        requirements: distributions of this repository, with extras.
    """

    def __init__(self, folder: Path, *requirements: str) -> None:
        names = needed([*requirements])
        for name in names:
            for file in distribution(name).files or ():
                top = file.parts[0]
                link = folder / top
                if top not in ("..", "__pycache__") and not top.endswith(".pth") and not link.exists():
                    link.symlink_to(Path(str(distribution(name).locate_file(top))))
        self._path = [str(folder), *(str(ROOT / source) for name, source in SOURCES.items() if name in names)]

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run code that sees these packages alone."""
        start = f"import sys; sys.path[:0] = {self._path!r}\n{code}"
        environment = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH", "PATH") if name in os.environ}
        command = [sys.executable, "-I", "-S", "-c", start]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def prints(self, code: str) -> str:
        """What the code prints; an exception in it fails the test."""
        done = self.run(code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `dgmark` with these arguments."""
        return self.run(f"sys.argv = {['dgmark', *arguments]!r}\nfrom dgmark.__main__ import main\nmain()")


# --- what pages tell to install


@pytest.mark.parametrize("line", sorted({line for _, line in install_lines()}))
def test_a_line_of_pip_install_names_what_a_folder_needs_before_the_folder(line: str) -> None:
    """For that pip would look on the index, before version 23.3 even if the line names it later."""
    named: set[str] = set()
    ours = {project["name"] for project in PROJECTS.values()}
    for folder, extras in re.findall(r"(\.[/a-z]*)(?:\[(.+?)\])?", line):
        project = PROJECTS[folder]
        needed = [*project.get("dependencies", ())]
        for extra in filter(None, extras.split(",")):
            needed += project["optional-dependencies"][extra]
        assert {Requirement(one).name for one in needed} & ours <= {*named, project["name"]}
        named.add(project["name"])


def test_pages_and_scripts_have_such_lines() -> None:
    found = {file for file, _ in install_lines()}
    assert {
        "Makefile",
        "README.md",
        "deploy/Containerfile",
        "docs/models.md",
        "docs/service.md",
        "docs/tutorial.ipynb",
    } <= found


def test_the_service_needs_what_reports_need_without_an_extra_of_dgmark() -> None:
    needed = PROJECTS["./service"]["dependencies"]
    assert {"dgmark", *PROJECTS["."]["optional-dependencies"]["report"]} <= {*needed}


# --- what runs then


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """The folder of a model of one's own: its tokenizer and what it says of itself."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ("config.json", "tokenizer.json"):
        (folder / file).write_bytes((builtin_folder("storyteller") / file).read_bytes())
    return str(folder)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of an environment."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_the_core_alone_detects_in_plain_text_and_says_what_else_needs(site: Path, tokenizer: str) -> None:
    core, folder = Environment(site, "dgmark"), site.parent
    (folder / "text.txt").write_text("Once upon a time there was a text of some words.")
    (folder / "table.csv").write_text("id,text\na,Once upon a time there was a text of some words.\n")
    (folder / "page.html").write_text("<p>Once upon a time.</p>")
    assert core.command("keygen", str(folder / "key.json"), "--model", tokenizer).returncode == 0
    detect = ("detect", "--key", str(folder / "key.json"))
    for name in ("text.txt", "table.csv"):
        found = core.command(*detect, "--json", str(folder / name))
        assert (found.returncode, '"verdict"' in found.stdout) == (0, True), found.stderr
    for name in (str(folder / "page.html"), str(CORPUS / "story.pdf")):
        refused = core.command(*detect, name)
        assert refused.returncode == 6
        assert "run `pip install ./documents` in a checkout of dgmark" in refused.stderr
    for command in ("serve", "access"):
        missing = core.command(command, "--keys", "x")
        assert missing.returncode == 6
        assert "run `pip install ./service` in a checkout of dgmark" in missing.stderr
    assert "Needs dgmark-service" in core.command("--help").stdout
    code = (
        "import dgmark\n"
        f"dgmark.Detector(dgmark.WatermarkKey.generate({tokenizer!r})).detect('A text.')\n"
        f"dgmark.read_document({str(folder / 'text.txt')!r})\n"
        "print({'torch', 'lxml', 'dgmark_documents'} & set(sys.modules))"
    )
    assert core.prints(code) == "set()"


def test_with_documents_a_pdf_is_read(site: Path) -> None:
    both = Environment(site, "dgmark", "dgmark-documents")
    printed = both.prints(
        f"import dgmark\nprint(dgmark.read_document({str(CORPUS / 'story.pdf')!r}).kind, dgmark.Limits().pages)\n"
        "print('torch' in sys.modules)"
    )
    assert printed.split() == ["PDF", "5000", "False"]


@pytest.mark.slow
def test_with_the_service_and_a_model_it_serves(site: Path) -> None:
    all_of_it = Environment(site, "dgmark[generate]", "dgmark-service", "dgmark-builtin")
    code = """
import asyncio, json, tempfile, threading, time, urllib.request
from pathlib import Path
import dgmark, uvicorn
from dgmark_service.app import create_app
from dgmark_service.settings import ServiceSettings
import dgmark_service.model_worker
keys = Path(tempfile.mkdtemp())
dgmark.WatermarkKey.generate("storyteller").save(keys / "main.json")
app = create_app(ServiceSettings(keys, public=True, workers=1))
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
thread = threading.Thread(target=server.run, daemon=True)
if __name__ == "__main__":
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz").status)
    server.should_exit = True
    thread.join()
"""
    assert all_of_it.prints(code) == "200"


@pytest.mark.soak
def test_the_install_that_the_notebook_states_has_all_that_its_cells_import(site: Path) -> None:
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    (stated,) = re.findall("`pip install (.+?)`", "".join(cells[0]["source"]))
    distributions = {f"./{name.removeprefix('dgmark-')}": name for name in SOURCES} | {".": "dgmark"}
    names = [re.sub(r"^\.[/\w]*", lambda found: distributions[found[0]], one) for one in shlex.split(stated)]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    imports = [ast.unparse(one) for one in ast.parse(code).body if isinstance(one, ast.Import | ast.ImportFrom)]
    assert len(imports) > 5
    Environment(site, *names).prints("\n".join(imports))
