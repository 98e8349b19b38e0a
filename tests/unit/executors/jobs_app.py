"""The app that the executors' tests run: every way in which a job can end, or refuse to."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import contextvars
import ctypes
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from uuid import UUID

from longshore import App, Cancelled, Fail, Retry, Snooze, current
from longshore.model.job import Submission

SLEEPER = [sys.executable, "-c", "import time; time.sleep(1000)"]

leaked: contextvars.ContextVar[str] = contextvars.ContextVar("leaked", default="nothing")


app = App("jobs")


class Unpackable:
    """Nothing that can be stored."""


class Unshowable:
    """Nothing that can be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Spiteful(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


# ends


@app.job
async def add_async(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@app.job
def add(a: int, b: int = 0) -> int:
    return a + b


@app.job
def nap(seconds: float, then: int) -> int:
    time.sleep(seconds)
    return then


@app.job
async def shout(text: bytes) -> bytes:
    return text.upper()


@app.job
async def measure(text: bytes) -> int:
    return len(text)


@app.job
async def raise_async() -> None:
    await asyncio.sleep(0)
    _deep()


@app.job
def raise_sync() -> None:
    _deep()


def _deep() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise LookupError("outer") from error


@app.job
def raise_spiteful() -> None:
    raise Spiteful


meeting = threading.Barrier(41, timeout=20)


@app.job
async def meet_in_threads() -> int:
    """Returns once 41 jobs are here, each in a thread."""
    return await asyncio.to_thread(meeting.wait)


@app.job
async def meet_oneself() -> int:
    """Returns once five threads of this job are at one place."""
    place = threading.Barrier(5, timeout=20)
    return len(await asyncio.gather(*(asyncio.to_thread(place.wait) for _ in range(5))))


@app.job
async def block_in_a_thread() -> None:
    current().step("begun")
    await asyncio.to_thread(threading.Event().wait)


@app.job
async def threads_of_the_pool() -> int:
    await asyncio.to_thread(int)
    return sum(one.name.startswith("longshore-to-thread") for one in threading.enumerate())


@app.job
def raise_long() -> None:
    raise ValueError("é" * 100_000 + "\ud800")


@app.job
def raise_deep() -> None:
    raise_deep()


@app.job
def snooze(after_s: float) -> None:
    raise Snooze(after_s, "not yet")


@app.job
async def return_snooze(after_s: float) -> Snooze:
    return Snooze(after_s=after_s)


@app.job
def ask_retry(after_s: float | None = None) -> None:
    raise Retry("not yet", after_s=after_s)


def _raise(error: str) -> None:
    errors: dict[str, Exception] = {"retry": Retry("again"), "fail": Fail("never")}
    raise errors.get(error) or getattr(builtins, error)(error)


@app.job(retry_on=OSError, fail_on=(FileNotFoundError, Retry))
def raise_by_rule(error: str) -> None:
    _raise(error)


@app.job(retry_on=(OSError,), fail_on=(FileNotFoundError, Retry))
async def raise_by_rule_async(error: str) -> None:
    _raise(error)


@app.job
async def ask_fail() -> None:
    raise Fail("never")


@app.job
async def unpackable_async() -> object:
    return {"rows": [1, Unpackable()]}


@app.job
def unpackable() -> object:
    return Unpackable()


@app.job
def too_large() -> bytes:
    return bytes(2 * 1024 * 1024)


@app.job
def large(size: int) -> bytes:
    return bytes(size)


@app.job
def length(text: str) -> int:
    return len(text)


_hoarded: list[bytearray] = []


@app.job
def hoard(mb: int) -> int:
    """Keeps so much memory for good."""
    _hoarded.append(bytearray(b"x" * (mb * 1024 * 1024)))
    return os.getpid()


@app.job
def talk(size: int) -> int:
    """Prints a lot, to both streams and to descriptors 1 and 2 themselves."""
    print("x" * size)
    print("y" * size, file=sys.stderr, end="")
    os.write(1, b"\0" * 1000)
    os.write(2, b"\xff" * 1000)
    return size


@app.job
def exit_sync(code: int) -> None:
    sys.exit(code)


@app.job
async def exit_async() -> None:
    sys.exit(3)


@app.job
async def interrupt_async() -> None:
    raise KeyboardInterrupt


@app.job
async def cancel_itself() -> None:
    raise asyncio.CancelledError


@app.job
async def leave_task_that_exits() -> str:
    async def leave() -> None:
        sys.exit(4)

    asyncio.get_running_loop().create_task(leave())
    return "left"


@app.job
async def stop_the_loop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return "still here"


@app.job
async def cancel_neighbours() -> int:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    return len(others)


@app.job
async def wait_forever() -> None:
    current().step(f"pid {os.getpid()}")
    await asyncio.sleep(1000)


@app.job
async def clean_up_async(path: str) -> None:
    current().step("begun")
    try:
        await asyncio.sleep(1000)
    finally:
        _write(path, f"cleaned up, cancelled: {current().cancelled}")


@app.job
def clean_up(path: str) -> None:
    current().step("begun")
    try:
        time.sleep(1000)
    except Cancelled:
        _write(path, f"cleaned up, cancelled: {current().cancelled}")
        raise


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@app.job
async def succeed_when_cancelled() -> str:
    current().step("begun")
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return "done anyway"
    return "woke up"


@app.job
async def ignore_cancel() -> None:
    current().step("begun")
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            continue


@app.job
async def block_the_loop() -> None:
    time.sleep(1000)  # noqa: ASYNC251


# plain jobs that do not end


@app.job
def spin() -> None:
    while True:
        pass


@app.job
def sleep() -> None:
    time.sleep(1000)


@app.job
def say_and_sleep() -> None:
    current().step(f"pid {os.getpid()}")
    time.sleep(1000)


@app.job
def swallow_cancelled() -> None:
    while True:
        with contextlib.suppress(Cancelled):
            time.sleep(1000)


@app.job
def block_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    time.sleep(1000)


@app.job
def keep_own_handler() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)


@app.job
async def sleep_in_child() -> None:
    current().step("begun")
    try:
        await asyncio.sleep(1000)
    finally:
        current().step("cleaned up")


# plain jobs in threads


@app.job(isolation="thread")
def doze(path: str = "") -> None:
    """Sleeps in short naps, so that it can be stopped; notes how it ends."""
    current().step(f"pid {os.getpid()}")
    try:
        while True:
            time.sleep(0.01)
    except Cancelled:
        if path:
            _write(path, f"cleaned up, cancelled: {current().cancelled}")
        raise


@app.job(isolation="thread")
def wait_for(path: str) -> int:
    """Ends when there is such a file."""
    current().step(f"pid {os.getpid()}")
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


@app.job(isolation="thread")
def watch_cancelled(path: str) -> None:
    """Never lets its cancellation through, but looks whether it is to stop."""
    current().step("begun")
    while not current().cancelled:
        with contextlib.suppress(Cancelled):
            time.sleep(0.01)
    _write(path, "stopped by itself")


@app.job(isolation="thread")
def ignore_cancelled() -> None:
    current().step(f"pid {os.getpid()}")
    while True:
        with contextlib.suppress(Cancelled):
            time.sleep(0.01)


_together = threading.Barrier(32)


@app.job(isolation="thread")
def meet() -> int:
    """Ends when all are there."""
    return _together.wait()


_local = threading.local()


@app.job(isolation="thread")
def leave_in_thread() -> bool:
    """Whether an earlier job left something in this thread."""
    is_there = hasattr(_local, "left")
    _local.left = True
    return is_there


@app.job(isolation="thread")
def use_up_threads() -> None:
    """From now on no thread can be started in this process."""
    threading.stack_size(1 << 46)


@app.job(isolation="thread")
def speak_in_turns_plain(name: str) -> None:
    for turn in range(3):
        print(name, end=" ")
        time.sleep(0.001)
        print(turn)
        logging.getLogger("turns").warning("%s logs", name)


@app.job(isolation="thread")
def speak_from_own_thread() -> None:
    """One thread that knows nothing of the job, and one that got its context."""
    context = contextvars.copy_context()
    for thread in (
        threading.Thread(target=print, args=("nobody's",)),
        threading.Thread(target=context.run, args=(print, "the job's")),
    ):
        thread.start()
        thread.join()


# crashes


@app.job
def segfault() -> None:
    ctypes.string_at(0)


@app.job
async def segfault_async() -> None:
    ctypes.string_at(0)


@app.job
def exit_hard(code: int) -> None:
    os._exit(code)


@app.job
def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def close_descriptors() -> None:
    os.closerange(3, 1000)
    time.sleep(1000)


@app.job
def speak_nonsense() -> None:
    """Writes garbage to every socket it finds."""
    for fd in range(3, 100):
        try:
            os.write(fd, b"\xff" * 100)
        except OSError:
            continue
    time.sleep(1000)


# forks and descendants


@app.job
def fork_and_return() -> str:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "original"
    return "copy"


@app.job
def fork_and_raise() -> str:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "original"
    current().progress(1)
    raise RuntimeError("copy")


@app.job
async def fork_and_return_async() -> str:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)  # noqa: ASYNC222
        return "original"
    return "copy"


@app.job
def fork_and_terminate() -> int:
    """A forked process can be ended by SIGTERM, as anywhere else."""
    pid = os.fork()
    if not pid:
        time.sleep(1000)
    os.kill(pid, signal.SIGTERM)
    return os.waitpid(pid, 0)[1]


@app.job
def fork_and_speak() -> int:
    """How a copy ends that uses the context of its original."""
    pid = os.fork()
    if not pid:
        current().log.warning("from the copy")
        # There should be none; one that tells what was said would end the copy in its own way.
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            thread.join(10)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.job
def leave_descendant() -> int:
    return subprocess.Popen(SLEEPER).pid


@app.job
def start_descendant_and_sleep() -> None:
    current().step(f"pid {subprocess.Popen(SLEEPER).pid}")
    time.sleep(1000)


@app.job
def inherited_by_descendant() -> list[str]:
    """The descriptors and signals that a program started by a job has."""
    script = "import os, signal; print(sorted(os.listdir('/proc/self/fd')), " + (
        "signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))"
    )
    command = [sys.executable, "-c", script]
    return [subprocess.check_output(command, text=True, close_fds=False)]


@app.job
def kill_by_group() -> None:
    os.killpg(0, signal.SIGINT)


# what a job sees


@app.job
def pid() -> int:
    return os.getpid()


@app.job
async def pid_async() -> int:
    return os.getpid()


@app.job
def identify() -> list[Any]:
    context = current()
    thread = threading.current_thread() is threading.main_thread()
    return [str(context.id), context.number, context.attempt, context.token, thread]


@app.job
async def identify_async() -> list[Any]:
    context = current()
    await asyncio.sleep(0)
    assert current() is context
    return [str(context.id), context.number, context.attempt, context.token]


@app.job
def leak() -> str:
    before = leaked.get()
    leaked.set("something")
    return before


@app.job
def read_stdin() -> str:
    return sys.stdin.read()


@app.job
def progress_often(times: int) -> None:
    for done in range(times):
        current().progress(done + 1, times, f"row {done + 1}")


@app.job
async def progress_often_async(times: int) -> None:
    for done in range(times):
        current().progress(done + 1, times)
    current().step("done")


@app.job
async def progress_from_thread() -> None:
    await asyncio.to_thread(lambda: current().progress(7))


@app.job
def progress_then_sleep() -> None:
    current().progress(1)
    current().progress(2)
    time.sleep(1000)


@app.job
def say_garbage() -> None:
    current().step("a \ud800 b")


@app.job
async def submit_two() -> list[str]:
    calls = [add.call(1), add.call(1)]
    return [str(current().submit(call)) for call in calls]


@app.job
async def submit_and_raise() -> None:
    current().submit(Submission(UUID(int=0), "add", b""))
    raise ValueError


@app.job
async def submit_too_much() -> None:
    for number in range(20):
        current().submit(Submission(UUID(int=number), "add", bytes(1024 * 1024)))


@app.job
def speak() -> None:
    print("printed")
    print("to stderr", file=sys.stderr)
    logging.getLogger("speaker").warning("logged %d", 1)
    current().log.info("bound")
    sys.stdout.buffer.write(b"\xff bytes\n")
    print("no end", end="")


@app.job
def print_lines(count: int) -> None:
    print("\n".join(map(str, range(count))))


@app.job
def print_oddly() -> None:
    print("ä \udcff")


@app.job
def swap_output() -> None:
    sys.stdout = sys.stderr = io.StringIO()


@app.job
def close_output() -> None:
    sys.stdout.buffer.close()
    sys.stdout.close()
    sys.stderr.close()


@app.job
async def speak_in_turns(name: str) -> None:
    for turn in range(3):
        print(name, end=" ")
        await asyncio.sleep(0)
        print(turn)
    await asyncio.to_thread(print, name, "in a thread")


@app.job
def configure_and_log() -> None:
    logging.basicConfig(force=True)
    logging.getLogger("configured").error("only once")


def _log_under_odd_names() -> None:
    logging.addLevelName(35, "\udcff")
    logging.getLogger("\udcff" + "x" * 1_000_000).log(35, "odd")


@app.job
def log_under_odd_names() -> None:
    _log_under_odd_names()


@app.job
async def log_under_odd_names_async() -> None:
    _log_under_odd_names()


@app.job
def log_spitefully() -> None:
    logging.lastResort = None
    logging.getLogger("spiteful").error(Unshowable())


@app.job
def speak_and_die(heard: str) -> None:
    print("last words")
    while not os.path.exists(heard):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def _print_from_a_copy() -> None:
    copy = os.fork()
    if copy == 0:
        print("printed by the copy", flush=True)
        sys.stdout.buffer.write(b"bytes of the copy\n")
        sys.stdout.flush()
        logging.getLogger("copy").warning("logged by the copy")
        os._exit(0)
    os.waitpid(copy, 0)
    print("printed by the original")


@app.job
def print_from_a_copy() -> None:
    _print_from_a_copy()


@app.job
async def print_from_a_copy_async() -> None:
    _print_from_a_copy()


def _print_marked() -> None:
    print("one\ntwo", flush=True)
    sys.stdout.buffer.write(b"bytes\n")
    sys.stdout.flush()
    logging.getLogger("marked").warning("warned")


@app.job
def print_marked() -> None:
    _print_marked()


@app.job
async def print_marked_async() -> None:
    _print_marked()
