"""The SDK's own event loop: interrupted calls, abandoned iterators, forks and the end of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from paddlejob import JobError
from paddlejob.client.errors import ClientError
from paddlejob.kube.errors import TransportError
from paddlejob.sdk.background import Background
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def background():
    before = set(threading.enumerate())
    made = Background()
    yield made
    made.close()
    assert not [each for each in set(threading.enumerate()) - before if each.name == "paddlejob-sdk"]


class Probe:
    """Something that runs until it is cancelled."""

    def __init__(self):
        self.runs = threading.Event()
        self.ended = threading.Event()

    async def call(self):
        self.runs.set()
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0)
            self.ended.set()

    async def numbers(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.ended.set)
            number = 0
            while True:
                yield number
                number += 1
                await asyncio.sleep(0)


def interrupt_when(event):
    """Press Ctrl-C in the main thread."""

    def press():
        assert event.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press).start()


def test_ctrl_c_ends_a_call_and_waits_for_its_end(background):
    probe = Probe()
    interrupt_when(probe.runs)
    with pytest.raises(KeyboardInterrupt):
        background.call(probe.call)
    assert probe.ended.is_set()
    assert background.call(asyncio.sleep, 0, "still there") == "still there"


def test_an_iterator_that_is_left_ends_its_source(background):
    probe = Probe()
    for number in background.iterate(probe.numbers):
        if number == 100:
            break
    gc.collect()
    assert probe.ended.wait(60)


def test_an_iterator_yields_all_and_raises_what_its_source_raises(background):
    async def source():
        for number in range(100):
            yield number
        raise ClientError("no more")

    numbers = background.iterate(source)
    assert list(itertools.islice(numbers, 100)) == list(range(100))
    with pytest.raises(JobError, match="no more"):
        next(numbers)


def test_an_iterator_does_not_run_ahead_of_a_slow_reader(background):
    made = []

    async def source():
        for number in range(1000):
            made.append(number)
            yield number

    numbers = background.iterate(source)
    assert next(numbers) == 0
    background.call(asyncio.sleep, 0.05)
    assert len(made) < 50
    numbers.close()


def test_errors_are_sentences_without_the_inside(background):
    async def fail():
        raise TransportError("connection refused")

    with pytest.raises(JobError, match=r"^connection refused$") as caught:
        background.call(fail)
    assert caught.value.__suppress_context__


def test_a_cancelled_await_ends_the_call(background):
    probe = Probe()

    async def main():
        waiting = asyncio.create_task(background.call_async(probe.call))
        while not probe.runs.is_set():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert probe.ended.wait(60)


def test_what_nobody_holds_is_closed(background):
    closed = threading.Event()

    class Owner:
        pass

    async def close():
        closed.set()

    owner = Owner()
    background.close_with(owner, close)
    background.call(asyncio.sleep, 0)
    assert not closed.is_set()
    del owner
    gc.collect()
    assert closed.wait(60)


def test_what_is_held_is_closed_in_the_end(background):
    closed = threading.Event()

    async def close():
        closed.set()

    background.close_with(background, close)
    background.close()
    assert closed.is_set()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_gets_a_loop_of_its_own(background):
    background.call(asyncio.sleep, 0)
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here.
        code = 1
        try:
            code = 0 if background.call(asyncio.sleep, 0, "child") == "child" else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert background.call(asyncio.sleep, 0, "parent") == "parent"


ENDINGS = {
    "with a call behind it": "background.call(asyncio.sleep, 0)",
    "with an iterator half read": "numbers = background.iterate(source); next(numbers)",
    "with a thread of the executor": "background.call(asyncio.to_thread, print, end='')",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_quietly(ending):
    program = textwrap.dedent(
        """
        import asyncio
        from paddlejob.sdk.background import BACKGROUND as background
        async def source():
            while True:
                yield 1
        """
    )
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", program + ENDINGS[ending]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    trouble = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, trouble) == (0, [])


def test_a_script_that_is_interrupted_ends_with_a_keyboard_interrupt(laptop):
    (laptop / "wait.sh").write_text("echo up; sleep 600\n")
    program = (
        "from paddlejob import train\n"
        "job = train('wait.sh')\n"
        "next(job.logs(follow=True))\n"
        "print('waiting', flush=True)\n"
        "job.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "During handling" not in errors
    eventually(lambda: _job_lives(laptop))


def _job_lives(laptop):
    from paddlejob import Job

    return [job.status().phase for job in Job.list()] == ["Running"]
