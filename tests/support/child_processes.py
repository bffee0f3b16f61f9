"""The processes below a process."""

from contextlib import suppress

import psutil


def children(pid: int) -> set[psutil.Process]:
    """All processes below a process."""
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def workers(pid: int) -> set[psutil.Process]:
    """Those below a process that multiprocessing has spawned as workers."""
    found = set()
    for child in children(pid):
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.add(child)
    return found
