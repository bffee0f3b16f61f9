"""`dgmark serve`: the service, on uvicorn."""

import asyncio
import atexit
import errno
import gc
import inspect
import ipaddress
import os
import signal
import socket
import tempfile
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

from typer import Option

from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.gguf import LLAMA_OPTIONS, check_options, is_gguf
from dgmark.cli.console import command_errors, option_of, stderr
from dgmark.cli.demo import SHOWS
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.options import AllowOpenKey, Loading, ModelContext, loading_options, set_options
from dgmark.cli.panels import panels
from dgmark.decode.config import DecodeConfig
from dgmark.decode.settings_file import TunedSettings, read_settings_file
from dgmark.errors import SettingsError, needed_extra
from dgmark.files.outputs import check_output
from dgmark.report.signing import SigningKey, read_key_set
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.key_file import found_key_file, write_private
from dgmark.watermark.secret import Secret
from dgmark_service.logs import log_config
from dgmark_service.settings import LOCAL_PROXIES, ModelSource, ServiceSettings
from dgmark_service.token_file import API_TOKEN, environment_token

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

LogLevel = Literal["debug", "info", "warning", "error"]
Fields = dict[str, Any]
# a text of the storyteller, and the key that marks it, which everybody knows
_SAMPLE = Path(__file__).with_name("sample") / "sample.txt"
_LOADING = ("device", "dtype", "device_map", "compile", *LLAMA_OPTIONS)
# fields of the settings that are for writing texts, and their options
_WRITING = {
    "generate_keys": "--generate-key",
    "enforce": "--enforce",
    "payloads": "--payloads",
    "rows": "--batch-size",
    "text_seconds": "--text-seconds",
}
_FIELDS = inspect.signature(ServiceSettings)
# the fields that are options as they are
_PLAIN = [name for name, field in _FIELDS.parameters.items() if get_origin(field.annotation) is Annotated]

if TYPE_CHECKING:
    from fastapi import FastAPI

    from dgmark_service.state import ServiceState


@command_errors
@panels(
    Access="public public_rate proxy root_path connections allow_open_keys",
    Checking="key fpr tokenizer surprisal_model surprisal_context workers queue",
    Reports="sign trust commitments",
    Writing=["generate_key", "enforce", "payloads", "settings", "bias", "rows", "text_seconds", *_LOADING],
    Logs="log_level access_log audit",
)
@option_groups
def serve(
    *,
    keys: Annotated[Path | None, Option(help="Folder of key files; requests name a key by its file's name.")] = None,
    key: Annotated[Path | None, Option("--key", "-k", help="In place of --keys, one key: a file or a name.")] = None,
    demo: Annotated[bool, Option("--demo", help="Serve the storyteller with a new key.")] = False,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0: any that is free.")] = 8321,
    fields: Annotated[Fields, OptionGroup(dict, _PLAIN, _FIELDS)],
    proxy: Annotated[
        list[str], Option(metavar="ADDRESS", help="Trusted proxy or network; repeatable.", show_default="this machine")
    ] = list(LOCAL_PROXIES),  # noqa: B006 (typer reads it once)
    allow_open_keys: AllowOpenKey = False,
    surprisal_context: ModelContext = None,
    log_level: Annotated[
        LogLevel, Option(metavar="LEVEL", help="Log debug, info, warning or error and worse.")
    ] = "info",
    access_log: Annotated[
        bool, Option("--access-log", help="Log each request as JSON: address, path, status, time; no texts.")
    ] = False,
    sign: Annotated[Path | None, Option(help="Sign reports with this key (`dgmark report keygen`).")] = None,
    trust: Annotated[
        list[Path], Option("--jwks", metavar="FILE", help="Also verify reports of these public keys; repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[
        list[str], Option(metavar="MODEL", help="Also write marked texts with this model; repeatable.")
    ] = [],  # noqa: B006
    loading: Annotated[Loading, loading_options(*_LOADING)],
    generate_key: Annotated[
        list[str], Option(metavar="NAME", help="Key to mark with; repeatable.", show_default="the only fit")
    ] = [],  # noqa: B006
    settings: Annotated[list[Path], Option(metavar="FILE", help="Settings file for a --model; repeatable.")] = [],  # noqa: B006
    bias: Annotated[
        float | None, Option(metavar="NUMBER", help="Bias of marked texts: marks at temperature 0 too.")
    ] = None,
) -> None:
    """Check texts over HTTP (see /openapi.json) and on a page at /; with --model also write them."""
    DecodeConfig(bias=bias or 0.0)  # a wrong one is an error now, not of each request
    fields |= {"allow_open_keys": allow_open_keys, "surprisal_context": surprisal_context}
    fields |= {"proxies": tuple(proxy), "generate_keys": tuple(generate_key), "api_token": environment_token()}
    if not (fields["tokens"] or fields["api_token"] or fields["public"] or _is_local(host)):
        raise SettingsError(
            f"whoever reaches {host} could use every key: give --tokens FILE (see `dgmark access keygen`), set "
            f"{API_TOKEN}, or give --public"
        )
    from dgmark_service.app import create_app

    fields["signer"] = SigningKey.load(sign, allow_open=allow_open_keys) if sign else None
    fields["trusted"] = tuple(key for file in trust for key in read_key_set(file)["keys"])
    fields["logging"] = log_config(log_level, access=access_log)
    sources = _sources(model, loading, fields["tokenizer"], [read_settings_file(file) for file in settings])
    if key is not None:
        if keys is not None:
            raise SettingsError("--key and --keys exclude each other: leave one of them out")
        keys = found_key_file(key)
    if demo:
        if keys is not None or sources:
            raise SettingsError("--demo brings its own key and model: leave --keys and --model out")
        keys, sources, fields["sample"] = _temporary_keys(), (_demo_source(loading),), _SAMPLE.read_text()
        fields["generate_keys"] = ("demo",)
        stderr().print("The page holds a sample: check it there, then have a text written on the page Write.")
    if keys is None:
        raise SettingsError("give --key KEY or --keys FOLDER (`dgmark keygen` makes a key), or --demo")
    marked = set_options(bias=bias)
    given = ServiceSettings(
        keys, **fields, models=tuple(replace(source, marked={**source.marked, **marked}) for source in sources)
    )
    if not sources:
        _refuse_writing_options({**loading, **marked}, given)
    read = (keys, given.tokens, given.commitments, given.tokenizer)
    check_output(given.audit, [None if path is None else str(path) for path in read])
    _check_free(host, port)
    _run(create_app(given), host, port)


def _refuse_writing_options(given: Fields, settings: ServiceSettings) -> None:
    """Refuse options that concern writing where no model writes."""
    vain = [option_of(name) for name, value in given.items() if value]
    vain += [option for name, option in _WRITING.items() if getattr(settings, name) != getattr(ServiceSettings, name)]
    if vain:
        raise SettingsError(f"{', '.join(vain)}: only for writing texts, which needs a model: give --model NAME")


def _check_free(host: str, port: int) -> None:
    """Refuse an address at which the service cannot listen, before its processes are started."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:  # of one of several, such as that of IPv6 where there is none
            detail = (
                f"the service cannot listen at {host}, port {port} ({error.strerror}): choose another --port or --host"
            )
            raise SettingsError(detail) from error


def _run(app: "FastAPI", host: str, port: int) -> None:
    """Serve until a signal comes; the texts that are being written then are given up. SIGHUP reads the keys again.

    Raises:
        DgmarkError: the models cannot be loaded.
    """
    import uvicorn

    state: ServiceState = app.state.service

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            if hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
            await super().startup(sockets)
            gc.freeze()  # to look through what lasts for ever would hold the loop for over 100 ms
            if state.failure is not None:
                # once this has returned, because a server that is to end before it has begun leaves its work as it is
                asyncio.get_running_loop().call_soon(self.give_up)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            asyncio.get_running_loop().call_soon_threadsafe(state.stop_generation)
            super().handle_exit(sig, frame)

        def reload(self) -> None:
            self.reloading = asyncio.ensure_future(state.reload())

        def give_up(self) -> None:
            self.should_exit = self.started

    # no name of the server in answers; a client that is silent for long loses its connection, and one that does not
    # take its answer holds up the end for so long only
    server = Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http="h11",
            ws="none",
            limit_concurrency=_most_connections(state.settings.connections) + 1,  # the first number that is refused
            forwarded_allow_ips=list(state.settings.proxies),
            log_config=state.settings.logging,
            access_log=False,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=120,
        )
    )
    state.on_failure = server.give_up
    with suppress(KeyboardInterrupt):  # which uvicorn raises again once it has stopped
        asyncio.run(server.serve())  # `server.run` turns asyncio's debug mode off, whatever the environment says
    if state.failure is not None:
        raise state.failure
    if state.given_up:
        stderr().print(f"{state.given_up} texts that were being written were given up")


def _most_connections(wanted: int) -> int:
    """At most three quarters of the files that the process may open: requests and workers need some as well."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
    return wanted if files < 0 else min(wanted, files * 3 // 4)


def _sources(
    models: list[str], loading: Loading, tokenizer: str | None, tuned: list[TunedSettings]
) -> tuple[ModelSource, ...]:
    """The models that write texts, each with its settings file.

    Raises:
        MissingExtra: torch is not installed.
        SettingsError: a settings file is for none of the models, or none of the models takes an option.
    """
    with needed_extra("generate", "writing texts"):
        if models and find_spec("torch") is None:
            raise ImportError("no module named torch")
    of_gguf = [is_gguf(name) for name in models]
    # where models of both kinds are served, each option is for those that take it
    mixed = len(set(of_gguf)) > 1
    sources = []
    for name, gguf in zip(models, of_gguf, strict=True):
        own = {option: value for option, value in loading.items() if not mixed or (option in LLAMA_OPTIONS) == gguf}
        check_options(name, own)
        sources.append(ModelSource({**own, "name_or_path": name, **({"tokenizer": tokenizer} if gguf else {})}))
    for settings in tuned:
        named = [place for place, source in enumerate(sources) if settings.model in (source.location, source.name)]
        if not named:
            raise SettingsError(f"the settings file for the model {settings.model} is for none of --model {models}")
        marked = {name: value for name, value in settings.decoding.items() if value is not None}
        sources[named[0]] = replace(sources[named[0]], marked=marked, tuned=settings)
    return tuple(sources)


def _temporary_keys() -> Path:
    """A folder with a new key of the storyteller and that of the sample, which is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="dgmark-")
    atexit.register(folder.cleanup)
    WatermarkKey.generate(BUILTIN, name="this demo").save(Path(folder.name) / "demo.json")
    # a copy of mode 0600: an installed file has whatever mode the installer gave it
    write_private(Path(folder.name) / "sample.json", Secret(_SAMPLE.with_suffix(".json").read_bytes()))
    return Path(folder.name)


def _demo_source(loading: Loading) -> ModelSource:
    """The storyteller, with the settings of `dgmark demo`."""
    show = SHOWS[BUILTIN]
    (source,) = _sources([BUILTIN], loading, None, [])
    return replace(source, marked=show.marked["bigram"], unmarked=show.unmarked)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
