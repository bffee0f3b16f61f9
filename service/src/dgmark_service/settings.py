"""What a service is started with, and the limits that it holds: what is an option of `dgmark serve` says so itself."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from limits import parse
from typer import Option

from dgmark.decode.settings_file import TunedSettings
from dgmark.detection.detector import DEFAULT_FPR, check_fpr
from dgmark.errors import SettingsError
from dgmark.report.signing import SigningKey
from dgmark.rows.workers import MAX_WORKERS
from dgmark_service.token_file import Token

MB = 2**20
# names under which a browser on this machine reaches a service that only this machine can reach. A page of another site
# can have its own name lead to this machine, and would then be answered as if it were ours
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
LOCAL_PROXIES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class ModelSource:
    """A model that the service runs.

    Attributes:
        loading: the arguments of `load_model`.
        marked: decoding settings of marked texts; those that a request names go before them.
        unmarked: decoding settings of texts without a mark.
        tuned: the settings file that `marked` comes from, which wants keys with its position code.
    """

    loading: Mapping[str, Any]
    marked: Mapping[str, Any] = field(default_factory=dict)
    unmarked: Mapping[str, Any] = field(default_factory=dict)
    tuned: TunedSettings | None = None

    @property
    def location(self) -> str:
        """Where the model is: its name, folder or hub id."""
        return str(self.loading["name_or_path"])

    @property
    def name(self) -> str:
        """What requests call it: its name or hub id, or the last part of its folder's path, which nobody else sees."""
        folder = Path(self.location)
        return folder.resolve().name if folder.is_dir() else self.location


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of one service. Those with an option are described by its help; rates and times are in seconds.

    Attributes:
        keys: folder of key files, or one key file; a key's name is its file's name without `.json`.
        tokens: None lets everybody who reaches the service do everything, which is meant for a service that only this
            machine can reach.
        proxies: addresses and networks of proxies, which are believed whose request they pass on (X-Forwarded-For).
        generate_keys: names of the keys that texts may be marked with; for each model the first that fits it is that of
            requests that name none. Empty: the only key that fits the model.
        allow_open_keys: accept key files that every user of the machine can read.
        surprisal_context: the most tokens that the language model reads at once; None for all it can.
        api_token: a token beside those of the file.
        public_seconds: seconds of a worker that one address without a token may use in a minute.
        signer: signs reports; None leaves them unsigned.
        trusted: published keys of others, and former ones of its own, whose reports it verifies beside `signer`'s.
        seconds: longest time that one request may keep a worker.
        worker_bytes: memory of one worker, where the system can limit it.
        at_once: requests with a body that are answered, or wait, at the same time; more are refused with 429.
        body_bytes: size of a request.
        all_bytes: size of all requests that are not answered yet; more are refused with 429.
        max_chars: characters of a text or prompt (ids, if ids are given).
        models: the models that write texts; none for detection alone. The first is that of requests that name none.
        logging: what the process of the models logs, for `logging.config.dictConfig`; None for warnings as text.
        sample: a text that the page Check holds when it is opened; None for none.

    Raises:
        SettingsError: a setting is invalid, or two models have the same name.
    """

    keys: Path
    tokens: Annotated[Path | None, Option(help="File of access tokens; needed if other machines can connect.")] = None
    public: Annotated[bool, Option("--public", help="Let everybody check texts: verdict and spans, no numbers.")] = (
        False
    )
    public_rate: Annotated[str, Option(help="Public checks by a token or address.")] = "30 per minute"
    root_path: Annotated[
        str, Option(metavar="PATH", help="Path under which a proxy has the service, such as /dgmark.")
    ] = ""
    connections: Annotated[int, Option(min=1, help="Open connections; more get a 503.")] = 1024
    audit: Annotated[Path | None, Option(help="Append policy decisions to this file, without texts or keys.")] = None
    commitments: Annotated[Path | None, Option(help="Folder of commitments (`dgmark key commit`) for reports.")] = None
    tokenizer: Annotated[str | None, Option(help="Tokenizer folder or file.", show_default="as each key names")] = None
    surprisal_model: Annotated[
        str | None, Option(metavar="MODEL", help="Language model that reads along; each worker loads it.")
    ] = None
    fpr: Annotated[float, Option(help="False-positive rate of verdicts.")] = DEFAULT_FPR
    workers: Annotated[
        int, Option(min=1, max=MAX_WORKERS, help="Processes that check.", show_default="CPUs, at most 4")
    ] = min(4, os.cpu_count() or 1)
    queue: Annotated[int, Option(min=0, help="Requests that may wait; more get a 429.")] = 64
    enforce: Annotated[bool, Option("--enforce", help="Mark every text, whatever a request says.")] = False
    payloads: Annotated[bool, Option("--payloads", help="Let requests choose the sub-key of a text.")] = False
    rows: Annotated[int, Option("--batch-size", min=1, help="Texts that are written at once.")] = 16
    text_seconds: Annotated[float, Option(min=1, help="Time limit of a text, with waiting.")] = 600
    proxies: tuple[str, ...] = LOCAL_PROXIES
    generate_keys: tuple[str, ...] = ()
    allow_open_keys: bool = False
    surprisal_context: int | None = None
    api_token: Token | None = None
    public_seconds: float = 20
    signer: SigningKey | None = None
    trusted: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 60
    worker_bytes: int = 4096 * MB
    at_once: int = 1024
    body_bytes: int = 16 * MB
    all_bytes: int = 256 * MB
    max_chars: int = 1_000_000
    models: tuple[ModelSource, ...] = ()
    logging: dict[str, Any] | None = None
    sample: str | None = None

    @property
    def needs_token(self) -> bool:
        """Whether whoever has no token may not do everything."""
        return self.tokens is not None or self.api_token is not None

    @property
    def local(self) -> bool:
        """Whether the service is for this machine alone."""
        return not (self.needs_token or self.public)

    @property
    def processes(self) -> int:
        """The processes that check. Where strangers ask beside token holders, there is one that they cannot take."""
        return max(2, self.workers) if self.public and self.needs_token else self.workers

    @property
    def report_keys(self) -> dict[str, Any]:
        """The key set that reports are verified with; it has no keys if the service verifies none."""
        return {"keys": [*(self.signer.to_jwks()["keys"] if self.signer else ()), *self.trusted]}

    def __post_init__(self) -> None:
        check_fpr(self.fpr)
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path, re.ASCII):
            raise SettingsError(
                f"{self.root_path!r} is no path such as /dgmark: it begins with a slash and has no end one"
            )
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise SettingsError(
                f"two models have the same name ({', '.join(names)}): requests could not tell them apart"
            )
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise SettingsError(
                    f"{proxy!r} is no address of a proxy ({error}): give one such as 10.0.0.7, or a network such as "
                    "10.0.0.0/24"
                ) from error
        try:
            rate = parse(self.public_rate)
        except ValueError as error:
            raise SettingsError(f"{self.public_rate!r} is not a rate such as '30 per minute'") from error
        if self.public and not rate.amount:
            raise SettingsError(f"{self.public_rate!r} lets nobody check a text: leave --public out, or raise the rate")
