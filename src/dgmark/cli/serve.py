"""`dgmark serve`: the service, on uvicorn."""

import ipaddress
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, needed_extra, stderr
from dgmark.cli.options import DETECTION, KEY, MODEL, SPEED, AllowOpenKey
from dgmark.detection.evidence import DEFAULT_FPR
from dgmark.errors import SettingsError
from dgmark.report.signing import SigningKey
from dgmark.rows.workers import MOST_WORKERS


@command_errors
def serve(
    keys: Annotated[
        Path, typer.Option(help="Folder of key files; requests name a key by its file's name.", rich_help_panel=KEY)
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8321,
    tokens: Annotated[
        Path | None,
        typer.Option(help="File of access tokens (see `dgmark access`); needed unless only this machine can connect."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody check texts: verdict and passages, no numbers.")
    ] = False,
    public_rate: Annotated[
        str, typer.Option(help="How often one token, and one address, may use the public form.")
    ] = "30 per minute",
    audit: Annotated[
        Path | None, typer.Option(help="Append policy decisions to this file, without texts and secrets.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="Sign reports with this key (see `dgmark report keygen`).", rich_help_panel=KEY)
    ] = None,
    allow_open_key: AllowOpenKey = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer folder or file.", show_default="the one that each key names", rich_help_panel=MODEL
        ),
    ] = None,
    fpr: Annotated[
        float, typer.Option(help="False-positive rate of requests that name none.", rich_help_panel=DETECTION)
    ] = DEFAULT_FPR,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_WORKERS,
            help="Processes that check texts.",
            show_default="processors, at most 4",
            rich_help_panel=SPEED,
        ),
    ] = None,
    queue: Annotated[
        int, typer.Option(min=0, help="Requests that may wait; more are refused with 429.", rich_help_panel=SPEED)
    ] = 64,
) -> None:
    """Check texts over HTTP, and in a browser on a page that needs no other server.

    Keys stay on this machine. The page is at /, the API under /v1, its description at /openapi.json.
    """
    if not (tokens or public or _is_local(host)):
        raise SettingsError(
            f"whoever reaches {host} could use every key: give --tokens FILE (see `dgmark access add`), or --public"
        )
    with needed_extra("serve", "the service", "fastapi and uvicorn"):
        import uvicorn

        from dgmark.service.app import create_app
        from dgmark.service.settings import ServiceSettings
    settings = ServiceSettings(
        keys=keys,
        tokens=tokens,
        public=public,
        public_rate=public_rate,
        signer=SigningKey.load(sign, allow_open=allow_open_key) if sign else None,
        fpr=fpr,
        tokenizer=tokenizer,
        allow_open_keys=allow_open_key,
        audit=audit,
        queue=queue,
        **({} if workers is None else {"workers": workers}),
    )
    app = create_app(settings)
    stderr().print(f"dgmark serves on http://{_in_url(host)}:{port}/ (stop with Ctrl-C)", markup=False)
    # no name of the server in answers; a client that is silent for long loses its connection
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False, timeout_keep_alive=15)
    stderr().print("stopped: what was accepted was answered", markup=False)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
