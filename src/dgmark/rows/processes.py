"""Processes that work for this one: started, given work, timed, and ended.

A process is started with one end of a connection alone. What it works with is sent over the connection, which breaks
when either side ends, however it ends: so no process outlives the one that started it, and none that has ended is
waited for. That is why a daemonic process, as of a `multiprocessing.Pool`, may start some too.

Python 3.11 waits for ever if a process ends while it starts and was given more than a pipe holds
(https://github.com/python/cpython/issues/118981). pebble and `concurrent.futures` give arguments to processes in that
way, and a pool of pebble's breaks when an idle process is killed.
"""

import os
import pickle
import signal
import traceback
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import current_process, get_context, spawn
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

from dgmark.errors import DgmarkError

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

Output = TypeVar("Output")

# until an interpreter reads what it is to do, and until it has imported the main script and says so
_SPAWN_SECONDS, START_SECONDS = 20.0, 300.0
# how much a process yields the processor to the one that started it, which answers others: a third of the share
_NICENESS = 5


class WorkerLost(DgmarkError):
    """A process ended before its work did."""


def in_thread(function: Callable[..., Output], *arguments: Any) -> "Future[Output]":
    """What a function returns, from a thread that holds up neither an event loop nor the end of the program."""
    future = Future[Output]()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    start_new_thread(run, ())  # `Thread.start` waits until the thread runs, which is long on a busy machine
    return future


class ChildProcess:
    """A process that calls `main(inbox, send, *arguments)`, and ends with this one. It starts in the background.

    Args:
        main: a module-level function. It gets a queue of what this process sends, and a function that sends it a
            message.
        arguments: its other arguments.
    """

    def __init__(self, main: Callable[..., object], *arguments: Any) -> None:
        # spawned, not forked, as a forked tokenizer may hang on its threads
        context = get_context("spawn")
        self._connection, their_end = context.Pipe()
        self._process = context.Process(target=_run, args=(their_end,), daemon=True)
        self._killed = False
        self._started = in_thread(self._start, their_end, (main, arguments))

    def _start(self, their_end: Connection, first: tuple[Any, ...]) -> None:
        try:
            _check_main_script()
            current_process().daemon = False  # or multiprocessing refuses
            in_thread(self._process.start).result(_SPAWN_SECONDS)
        except Exception as error:  # of the system, a timeout, or of packages that change multiprocessing
            raise WorkerLost(f"a process cannot be started: {str(error) or 'it does not run'}") from error
        finally:
            their_end.close()
        if self._killed:
            self._process.kill()
        try:
            self._receive(START_SECONDS)
        except TimeoutError as error:
            raise WorkerLost(f"a process was not ready within {START_SECONDS:g} seconds") from error
        except WorkerLost as error:
            raise WorkerLost(
                "a process ended before it was ready: memory ran out, or this is a script whose calls need "
                '`if __name__ == "__main__":` around them'
            ) from error
        with _lost_if_broken():
            self._connection.send(first)

    @property
    def pid(self) -> int | None:
        """The number of the process; None before it runs."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, or is being started."""
        return not self._started.done() or self._process.is_alive()

    def send(self, message: Any) -> None:
        """Send a message, which waits until the process has started; a WorkerLost if it has ended, or did not start."""
        self._started.result()
        with _lost_if_broken():
            self._connection.send(message)

    def receive(self, seconds: float | None = None) -> Any:
        """The next message.

        Args:
            seconds: to wait for it, once the process has started; None for as long as it takes.

        Raises:
            TimeoutError: none comes in that time.
            WorkerLost: the process has ended, or did not start.
        """
        self._started.result()
        return self._receive(seconds)

    def _receive(self, seconds: float | None) -> Any:
        with _lost_if_broken():
            if self._connection.poll(seconds):
                return self._connection.recv()
        raise TimeoutError

    def kill(self) -> None:
        """End the process now, also one that is being started; whoever waits for it gets a `WorkerLost`."""
        self._killed = True
        if self._process.pid is not None:
            self._process.kill()

    def wait_started(self) -> None:
        """Wait until the process has started or failed to, so that this one may end without a half started one."""
        with suppress(WorkerLost):
            self._started.result()


class Worker(ChildProcess):
    """A process that calls functions for this one, one at a time.

    Args:
        shared: the first arguments of all calls, which are sent once; they may be replaced.
        memory: bytes that it may have, where the system can limit them; None for no limit.
    """

    def __init__(self, *shared: Any, memory: int | None = None) -> None:
        super().__init__(_answer_calls, memory)
        self.shared, self._sent = shared, tuple[Any, ...]()

    def call(self, work: Callable[..., Output], *arguments: Any, seconds: float | None = None) -> Output:
        """The result of `work(*shared, *arguments)` there.

        Args:
            work: a module-level function, or a method of the first shared object's class.
            arguments: its other arguments.
            seconds: the longest that it may take once the process has started.

        Raises:
            TimeoutError: it takes longer; the process is of no use any more.
            WorkerLost: the process has ended, or did not start.
            BaseException: what the work raises.
        """
        self.send((work, arguments, None if self._sent is self.shared else self.shared))
        self._sent = self.shared
        done, result = self.receive(seconds)
        if done:
            return cast(Output, result)
        raise result


@contextmanager
def _lost_if_broken() -> Iterator[None]:
    """Report a broken connection as the end of the process, a WorkerLost."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise WorkerLost("a process ended before its work did, perhaps because memory ran out") from error


def _check_main_script() -> None:
    """Raise a FileNotFoundError if a process cannot import the main script, as multiprocessing has it do first."""
    script = spawn.get_preparation_data("").get("init_main_from_path")
    if script is not None and not os.path.isfile(script):
        raise FileNotFoundError(f"it would import this script, and {script} is no file: save the script as a file")


# --- in the process


def _run(connection: Connection) -> None:
    # Ctrl-C and a terminal's end reach all processes; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the keys
        os.nice(_NICENESS)
    inbox = SimpleQueue[Any]()
    Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    with suppress(OSError):
        connection.send(None)
    main, arguments = inbox.get()
    main(inbox, connection.send, *arguments)


def _listen(connection: Connection, inbox: "SimpleQueue[Any]") -> None:
    """Put all messages into the inbox, and end this process when the other one does.

    An error stands in the place of a message that cannot be read.
    """
    while True:
        try:
            content = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)
        try:
            message = pickle.loads(content)  # noqa: S301 (from the process that started this one)
        except Exception as error:
            message = error
        inbox.put(message)


def _answer_calls(inbox: "SimpleQueue[Any]", send: Callable[[Any], None], memory: int | None) -> None:
    """Answer each call by whether it succeeded, and its result or error."""
    if resource is not None and memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    shared: tuple[Any, ...] = ()
    while True:
        call = inbox.get()
        try:
            if isinstance(call, Exception):
                raise call
            work, arguments, others = call
            shared = shared if others is None else others
            answer: tuple[bool, Any] = True, work(*shared, *arguments)
        except BaseException as error:
            if not isinstance(error, DgmarkError):
                error.add_note("".join(traceback.format_exception(error)))
            answer = False, error
        try:
            send(answer)
        except Exception as error:  # of the pickling: a broken connection ends this process
            send((False, RuntimeError(f"the answer of a process cannot be sent: {error}")))
