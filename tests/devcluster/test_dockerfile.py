from __future__ import annotations

import pytest

from devcluster.dockerfile import Ignored, Instruction, parse, substitute, variables
from devcluster.programs import DevclusterError


def test_lines_are_joined_and_comments_left_out():
    text = "# why\nFROM debian:bookworm\nRUN one && \\\n    # in between\n    two\n\nCMD run\n"
    assert [str(each) for each in parse(text)] == ["FROM debian:bookworm", "RUN one && two", "CMD run"]


def test_flags_are_told_from_arguments():
    (_, copy) = parse("FROM a\nCOPY --from=build --chown=1:2 /a /b\n")
    assert copy == Instruction("COPY", "/a /b", {"from": "build", "chown": "1:2"})


def test_what_a_command_calls_a_flag_is_its_own():
    assert parse("FROM a\nENTRYPOINT --x\n")[1] == Instruction("ENTRYPOINT", "--x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("RUN x\n", "no FROM", id="nothing to start from"),
        pytest.param("FROM a\nRUN <<EOF\nx\nEOF\n", "text within", id="text in the file"),
    ],
)
def test_what_is_not_understood_is_said(text, message):
    with pytest.raises(DevclusterError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('["python3", "train.py"]', ["python3", "train.py"], id="a list"),
        pytest.param('a "b c"', ["a", "b c"], id="quoted words"),
    ],
)
def test_arguments_are_a_list_or_words(text, words):
    assert Instruction("COPY", text).words() == words


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param("$A/${A}", "x/x", id="both forms"),
        pytest.param("${B:-y} ${A:-y}", "y x", id="a default"),
        pytest.param("${A:+y}${B:+y}", "y", id="an alternative"),
        pytest.param(r"\$A $B.", "$A .", id="escaped and not set"),
    ],
)
def test_variables_are_replaced(text, result):
    assert substitute(text, {"A": "x"}) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param('A=1 B="two words"', {"A": "1", "B": "two words"}, id="pairs"),
        pytest.param("A one two", {"A": "one two"}, id="the old form"),
        pytest.param("A=b=c", {"A": "b=c"}, id="a value with an equals sign"),
    ],
)
def test_variables_are_read(text, result):
    assert variables(text) == result


@pytest.mark.parametrize(
    ("rules", "path", "kept_out"),
    [
        pytest.param("data", "data/train.txt", True, id="a directory with all in it"),
        pytest.param("data", "src/data", False, id="only at the top"),
        pytest.param("**/__pycache__", "src/a/__pycache__/x.pyc", True, id="at any depth"),
        pytest.param("*.py[co]", "x.py", False, id="a class of characters is taken literally"),
        pytest.param("*\n!src", "src/a.py", False, id="an exception"),
        pytest.param("*\n!src\n**/*.pyc", "src/a.pyc", True, id="the last rule decides"),
        pytest.param("# data\n\n", "data", False, id="comments and blank lines"),
    ],
)
def test_a_context_leaves_out_what_its_rules_say(rules, path, kept_out):
    assert (path in Ignored(rules)) is kept_out
