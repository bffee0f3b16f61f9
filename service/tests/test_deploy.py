"""What deploy/ has: linted by the programs that read it, where they are, and it fits `dgmark serve`."""

import http.client
import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import typer
import yaml

from dgmark.cli import app
from dgmark.errors import DgmarkError
from dgmark_service.settings import ServiceSettings
from support.services import wait_for

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "Containerfile"
UNIT = ROOT / "deploy" / "dgmark.service"
SMOKE = ROOT / "deploy" / "smoke.sh"


def options_of_serve(words: list[str]) -> dict[str, object]:
    """What `dgmark serve` understands these words as, without starting it."""
    assert words[0] == "serve"
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return dict(serve.make_context("serve", words[1:]).params)


def instructions(name: str) -> list[str]:
    lines = RECIPE.read_text().replace("\\\n", " ").splitlines()
    return [line.removeprefix(name).strip() for line in lines if line.startswith(f"{name} ")]


def setting(name: str) -> str:
    (value,) = (line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith(f"{name}="))
    return value


def test_the_recipe_has_no_fault_that_hadolint_knows() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint here")
    done = subprocess.run([hadolint, "--failure-threshold", "style", str(RECIPE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_recipe_copies_and_starts_what_there_is() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)
    assert instructions("USER")[-1] == "10001"
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    program, *words = json.loads(entry) + json.loads(command)
    options = options_of_serve(words)
    assert program == "dgmark"
    assert (options["host"], f"{options['port']}") == ("0.0.0.0", instructions("EXPOSE")[0])
    assert options["tokens"] is not None  # it can be reached from outside the container


def test_the_unit_starts_what_serve_understands() -> None:
    program, *words, more = shlex.split(setting("ExecStart"))
    options = options_of_serve(words)
    assert more == "$DGMARK_OPTIONS"
    assert program == "/opt/dgmark/bin/dgmark"
    assert options["tokens"] is not None
    assert Path(str(options["audit"])).parent.name == setting("LogsDirectory")
    assert setting("KillMode") == "mixed"
    assert setting("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_base_image_is_fixed() -> None:
    (base,) = (one for one in instructions("ARG") if one.startswith("PYTHON="))
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert {one.split(" AS ")[0] for one in instructions("FROM")} == {"docker.io/library/python:${PYTHON}"}


def test_the_compose_file_starts_what_there_is_with_its_keys_as_secrets() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    (one,), (entry,) = compose["services"].values(), instructions("ENTRYPOINT")
    options = options_of_serve([*json.loads(entry)[1:], *one["command"]])
    assert (ROOT / "deploy" / one["build"]["context"] / one["build"]["dockerfile"]).resolve() == RECIPE
    keys = [Path(secret["target"]) for secret in one["secrets"]]
    assert [(key.parent, key.suffix) for key in keys] == [(options["keys"], ".json")]
    assert {secret["source"] for secret in one["secrets"]} == set(compose["secrets"])
    folders = {Path(target): source for source, target, _ in (volume.split(":") for volume in one["volumes"])}
    assert Path(str(options["tokens"])).parent in folders
    ignored = (ROOT / ".gitignore").read_text().split()
    for place in (*folders.values(), *(str(Path(secret["file"]).parent) for secret in compose["secrets"].values())):
        assert f"deploy/{Path(place).name}/" in ignored  # nobody commits a key
    assert one["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
    (network,) = compose["networks"][one["networks"][0]]["ipam"]["config"]
    assert options["proxy"] == [network["gateway"]]
    assert ip_address(network["gateway"]) in ip_network(network["subnet"])
    assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
    assert int(one["stop_grace_period"].rstrip("s")) == int(setting("TimeoutStopSec"))


def test_compose_takes_the_compose_file() -> None:
    command = ["docker", "compose"]
    if shutil.which("docker") is None or subprocess.run([*command, "version"], capture_output=True).returncode:
        pytest.skip("no docker compose here")
    file = str(ROOT / "deploy" / "compose.yaml")
    done = subprocess.run([*command, "-f", file, "config", "--quiet"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_smoke_test_has_no_fault_that_shellcheck_knows() -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("no shellcheck here")
    done = subprocess.run([shellcheck, "--severity=warning", str(SMOKE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("body", "said"), [(None, "no interpreter"), ("exit 1", "dgmark cannot be started")])
def test_the_smoke_test_says_so_where_there_is_no_dgmark(tmp_path: Path, body: str | None, said: str) -> None:
    python = tmp_path / "python"
    if body is not None:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    done = subprocess.run(["sh", str(SMOKE), str(python)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_smoke_test_names_steps_that_fail_and_leaves_out_those_whose_packages_are_missing(tmp_path: Path) -> None:
    """An interpreter that has none of the packages, and a dgmark that says its version and nothing else."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *--version) echo dgmark 1;; *) echo broken; exit 1;; esac\n')
    python.chmod(0o755)
    done = subprocess.run(["sh", str(SMOKE), str(python)], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.findall("^(FAILED|ok) +(.+)$", done.stdout, re.MULTILINE) == [
        ("FAILED", "make a key"),
        ("FAILED", "check texts"),
        ("FAILED", "check a table"),
    ]
    assert "broken" in done.stdout
    skipped = re.findall("^skipped  .+: (.+) is not installed$", done.stdout, re.MULTILINE)
    assert skipped == ["dgmark_documents", "pyarrow", "jinja2", "torch", "dgmark_service"]


def proxy() -> str:
    return (ROOT / "deploy" / "nginx.conf").read_text()


def test_the_proxy_has_the_limits_of_the_service_and_one_for_headers() -> None:
    given = {words[0]: words[1:] for words in map(str.split, re.findall(r"^ *(.*);", proxy(), re.MULTILINE))}
    assert given["proxy_pass"] == [f"http://127.0.0.1:{options_of_serve(['serve'])['port']}"]
    assert given["client_max_body_size"] == [f"{ServiceSettings.body_bytes // 2**20}m"]
    assert int(given["proxy_read_timeout"][0].rstrip("s")) > ServiceSettings.text_seconds
    assert {"client_header_timeout", "client_body_timeout", "limit_conn", "limit_conn_zone"} <= set(given)


def test_the_proxy_speaks_no_old_protocol_and_sends_on_to_tls() -> None:
    servers = re.findall(r"^server \{\n(.*?)^\}", proxy(), re.MULTILINE | re.DOTALL)
    assert len(servers) == 3
    for server in servers:
        secure = "listen 443 ssl" in server
        # a server without them has those of nginx's version, and that of the first server holds for all
        assert ("ssl_protocols TLSv1.2 TLSv1.3;" in server) is secure
        assert "return" in server or (secure and "proxy_pass" in server)
    assert ("return 444;" in servers[0], "server_name" in servers[0]) == (True, False)  # the first answers other names
    assert "return 308 https://$server_name$request_uri;" in servers[1]
    assert "Strict-Transport-Security" in servers[2]


# what Debian's nginx reads after the files of conf.d
DEBIAN = "server { listen 80 default_server; listen [::]:80 default_server; root /var/www/html; server_name _; }"


@pytest.fixture(params=["", DEBIAN], ids=["alone", "Debian"])
def nginx(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The ports, without TLS and with it, of a running nginx with the configuration, and no service behind it."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None:
        pytest.skip("no nginx here")
    with socket.socket() as plain, socket.socket() as secure:
        plain.bind(("127.0.0.1", 0))
        secure.bind(("127.0.0.1", 0))
        ports = plain.getsockname()[1], secure.getsockname()[1]
    certificate = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=dgmark.example", "-days", "1"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(["openssl", *certificate, *files], check=True, capture_output=True)
    text = re.sub(r"listen \[::\].*?;", "", proxy() + request.param)
    local = {"listen 80": f"listen 127.0.0.1:{ports[0]}", "listen 443": f"listen 127.0.0.1:{ports[1]}"}
    local |= {f"/etc/ssl/dgmark.{end}": f"{tmp_path}/{name}.pem" for end, name in (("pem", "cert"), ("key", "key"))}
    for there, here in local.items():
        text = text.replace(there, here)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    text = text.replace("127.0.0.1:8321", "127.0.0.1:9")  # where nothing is
    settings = f"daemon off; pid {tmp_path}/pid; events {{}} http {{ access_log off; {paths}\n{text}}}"
    (tmp_path / "nginx.conf").write_text(settings)
    process = subprocess.Popen([program, "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "log")])
    try:
        wait_for(lambda: answers(ports[1]))
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def speaks(port: int, name: str, version: ssl.TLSVersion) -> bool:
    """Whether a client that has this version alone is spoken to by this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname=name),
        ):
            return True
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")  # old ones, which are what is tried
def test_nginx_takes_the_configuration_and_refuses_what_is_old_or_asks_for_another_name(nginx: tuple[int, int]) -> None:
    plain, secure = nginx
    known = {one.name: speaks(secure, "dgmark.example", one) for one in list(ssl.TLSVersion)[2:6]}
    assert known == {"TLSv1": False, "TLSv1_1": False, "TLSv1_2": True, "TLSv1_3": True}
    assert not speaks(secure, "other.example", ssl.TLSVersion.TLSv1_3)
    connection = http.client.HTTPConnection("127.0.0.1", plain, timeout=10)
    connection.request("POST", "/v1/detect?a=b", "{}", {"host": "dgmark.example"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"]) == (308, "https://dgmark.example/v1/detect?a=b")
    connection.close()


@pytest.mark.parametrize(("length", "status"), [(17 * 2**20, 413), (2, 502)])
def test_nginx_refuses_by_problem_documents(nginx: tuple[int, int], length: int, status: int) -> None:
    context = ssl._create_unverified_context()  # the server's name is none of this machine
    with (
        socket.create_connection(("127.0.0.1", nginx[1]), 10) as plain,
        context.wrap_socket(plain, server_hostname="dgmark.example") as connection,
    ):
        head = f"POST /v1/detect HTTP/1.1\r\nhost: dgmark.example\r\ncontent-length: {length}\r\n\r\n{{}}"
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        problem = json.loads(answer.read())
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert (problem["type"], problem["status"], set(problem)) == (
        "about:blank",
        status,
        {"type", "status", "title", "detail"},
    )
    assert "strict-transport-security" in answer.headers


def test_wrong_settings_do_not_start_the_unit_again() -> None:
    kinds: list[type[DgmarkError]] = [DgmarkError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind.exit_code for kind in kinds if kind.__module__ == "dgmark.errors"} - {DgmarkError.exit_code}
    assert {int(code) for code in setting("RestartPreventExitStatus").split()} == ours


def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/dgmark/bin/dgmark", "/bin/true"))  # which has to be there
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    # 20 of 100: 0 would be a unit that may do nothing
    command = [analyze, "security", "--no-pager", "--offline=true", "--threshold=20", str(unit)]
    assessed = subprocess.run(command, capture_output=True, text=True)
    assert assessed.returncode == 0, assessed.stdout[-500:]
