"""Functions as scripts: their dependencies, and objects that cannot be shipped."""

from __future__ import annotations

import functools
import math as m
import os.path
import subprocess
import sys
import threading
import xml.etree.ElementTree  # noqa: ICN001
from collections import OrderedDict
from dataclasses import dataclass
from json import dumps as to_json

import pytest

from paddlejob import JobError
from paddlejob.sdk.source import script_of

RATE = 0.5
NAMES = {"a": [1, (2.5, None)], "b": b"x"}
NOT_A_NUMBER = float("nan")
LOCK = threading.Lock()
LARGE = "x" * 20_000


def double(value):
    return 2 * value


twice = double


def logged(function):
    @functools.wraps(function)
    def call(*args):
        print("calling", function.__name__)
        return function(*args)

    return call


@logged
def decorated(value):
    return value + RATE


@functools.lru_cache
def cached(value):
    return double(value)


def even(number):
    return number == 0 or odd(number - 1)


def odd(number):
    return number != 0 and even(number - 1)


class Base:
    word = "base"


@dataclass
class Config(Base):
    rate: float = RATE

    def describe(self) -> Undefined:  # noqa: F821 - annotations are not evaluated in this module
        return f"{self.word} {self.rate}"


def use_all(steps: int, name="x"):
    print(steps, name, RATE, NAMES["a"], twice(3), decorated(1), cached(4), even(4), Config().describe())
    print(m.floor(2.5), os.path.sep, OrderedDict(), to_json([1]))
    print(xml.etree.ElementTree.fromstring("<a/>").tag, [double(each) for each in range(2)], __name__)


def counting():
    global RATE  # noqa: PLW0603
    RATE += 1
    print(RATE)


def use_lock():
    LOCK.acquire()


def use_nan():
    return NOT_A_NUMBER


def use_large():
    return LARGE


def use_unknown():
    return unknown  # noqa: F821


async def asynchronous():
    pass


class Trainer:
    def run(self):
        pass

    def __call__(self):
        pass


def ran(script, tmp_path):
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_function_travels_with_all_that_it_uses(tmp_path):
    script = script_of(use_all, {"steps": 3})
    expected = subprocess.run(
        [sys.executable, "-c", f"import runpy; runpy.run_path({__file__!r})['use_all'](3)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("<run_path>", "__main__")
    assert ran(script, tmp_path) == expected
    assert "LOCK" not in script
    assert "pytest" not in script


def test_a_global_that_changes_begins_as_it_is(tmp_path):
    assert ran(script_of(counting, {}), tmp_path) == "1.5\n"


def test_arguments_are_constants(tmp_path):
    script = script_of(use_all, {"steps": [1, {"a": None}], "name": "it's"})
    assert "[1, {'a': None}] it's 0.5 " in ran(script, tmp_path)


def closure():
    hidden = 3

    def inner():
        return hidden

    return inner


REFUSED = {
    "a lambda": (lambda: 1, {}, "a lambda cannot be shipped; write it as a function with def"),
    "a closure": (closure(), {}, "inner uses hidden of the enclosing function, .* pass it in args="),
    "an object": (
        use_lock,
        {},
        r"use_lock uses LOCK, which is an object of type _thread.lock .* inside use_lock",
    ),
    "not a number": (use_nan, {}, "use_nan uses NOT_A_NUMBER, which is an object of type float"),
    "a large constant": (use_large, {}, "use_large uses LARGE, which is a str too large for a program"),
    "an unknown name": (use_unknown, {}, "use_unknown uses unknown, which is not defined"),
    "a method": (Trainer().run, {}, "is not a function defined with def"),
    "an object to call": (Trainer(), {}, "is not a function defined with def"),
    "a class": (Trainer, {}, "is not a function defined with def"),
    "a builtin": (print, {}, "is not a function defined with def"),
    "a coroutine": (asynchronous, {}, "asynchronous is asynchronous; ship a function that calls asyncio.run"),
    "an argument": (use_all, {"steps": LOCK}, r"args\['steps'\] is an object of type _thread.lock"),
    "a missing argument": (use_all, {}, r"use_all\(\): missing a required argument: 'steps'"),
    "a wrong argument": (use_all, {"steps": 1, "y": 2}, "got an unexpected keyword argument 'y'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_shipped_is_named_with_a_way_out(case):
    function, arguments, sentence = REFUSED[case]
    with pytest.raises(JobError, match=sentence) as caught:
        script_of(function, arguments)
    assert "\n" not in str(caught.value)


def test_a_module_of_the_user_is_shipped_as_a_file(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text("def build():\n    return 1\n")
    (tmp_path / "own_train.py").write_text(
        "import own_model\nfrom own_model import build\ndef fit():\n    print(own_model.build(), build())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import own_train

    with pytest.raises(
        JobError, match=r"fit uses your module own_model; ship it with files=\['own_model.py'\]"
    ):
        script_of(own_train.fit, {})
    script = script_of(own_train.fit, {}, {"own_model"})
    assert "import own_model\nfrom own_model import build\n" in script


def test_a_function_without_source_is_refused():
    namespace: dict = {}
    exec("def typed():\n    pass\n", namespace)
    with pytest.raises(JobError, match="the source of typed is unknown"):
        script_of(namespace["typed"], {})
