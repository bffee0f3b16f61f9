"""Tell the hub's libraries once that the hub cannot be reached."""

import os
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

_OFFLINE = "HF_HUB_OFFLINE"
_PATIENCE = 5.0  # seconds


def offline_if_unreachable() -> None:
    """Let the libraries of the hub answer from their cache at once, if the hub cannot be reached.

    They would try again for half a minute, with warnings. It has an effect only before they are imported; a choice
    that the user made (`HF_HUB_OFFLINE`) and a proxy, which may reach what this machine does not, are left alone.
    """
    if _OFFLINE in os.environ or getproxies():
        return
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=_PATIENCE).close()
    except OSError:
        os.environ[_OFFLINE] = "1"
