from __future__ import annotations

import pytest

from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.run.launch import format_flags, parse_flags, separate_arguments

OWN = {"--local": True, "--program": True, "--help": False}


@pytest.mark.parametrize(
    ("words", "ours", "others"),
    [
        pytest.param("--local 3", "--local 3", "", id="a value follows"),
        pytest.param("--local=3 --lr=1", "--local=3", "--lr=1", id="a value after the equals sign"),
        pytest.param(
            "--lr 1 --program p --k v", "--program p", "--lr 1 --k v", id="the trainer's keep their order"
        ),
        pytest.param(
            "--a 1 --local=0 --b 2", "", "--a 1 --local=0 --b 2", id="--local=0 is the legacy trainer's"
        ),
        pytest.param("--a 1 --local 0 --b 2", "", "--a 1 --local 0 --b 2", id="also in two words"),
        pytest.param("--local false", "", "--local false", id="also as a word"),
        pytest.param("--help --lr 1", "--help", "--lr 1", id="a flag takes no value"),
        pytest.param(
            "--local 3 -- --program x -h", "--local 3", "--program x -h", id="all after -- is the trainer's"
        ),
        pytest.param("x --k", "", "x --k", id="stray words are not ours to judge"),
        pytest.param("--program", "--program", "", id="a missing value is left to the parser"),
    ],
)
def test_separate(words, ours, others):
    assert separate_arguments(words.split(), OWN) == (ours.split(), others.split())


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        pytest.param(["--k=v"], {"k": "v"}, id="one word"),
        pytest.param(["--k", "v"], {"k": "v"}, id="two words"),
        pytest.param(["--k=a=b"], {"k": "a=b"}, id="only the first equals sign counts"),
        pytest.param(["--k=a b"], {"k": "a b"}, id="spaces stay in a value"),
        pytest.param(["--k", "-1"], {"k": "-1"}, id="a negative number is a value"),
        pytest.param(["--k", "--l=1"], {"k": None, "l": "1"}, id="a flag without a value"),
        pytest.param(["--k="], {"k": ""}, id="an empty value"),
        pytest.param(
            ["--a=1", "--b=2", "--a=3"], {"a": "3", "b": "2"}, id="later replaces earlier, in its place"
        ),
    ],
)
def test_parse_flags(words, flags):
    assert parse_flags(words) == flags
    assert list(parse_flags(words)) == list(flags)


@pytest.mark.parametrize("words", [["x"], ["--k=1", "x"], ["--"], ["-k"]])
def test_stray_words_are_refused(words):
    with pytest.raises(SettingsError, match="does not follow a --key"):
        parse_flags(words)


def test_flags_become_single_words():
    assert format_flags({"a": "1", "b": None, "c": "x y"}) == ("--a=1", "--b", "--c=x y")
