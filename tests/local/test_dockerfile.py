"""What a Dockerfile says about how its image's program starts."""

from __future__ import annotations

import pytest

from paddlejob.local.input.dockerfile import Copy, ImageConfig, instructions, parse

STARTS = {
    "exec form": ('ENTRYPOINT ["python3", "train.py"]', ("python3", "train.py"), ()),
    "shell form": ("CMD python train.py", (), ("/bin/sh", "-c", "python train.py")),
    "both": ('ENTRYPOINT ["a"]\nCMD ["b", "c"]', ("a",), ("b", "c")),
    "the last of each counts": ('CMD ["a"]\nCMD ["b"]', (), ("b",)),
    "another shell": ('SHELL ["bash", "-c"]\nCMD x', (), ("bash", "-c", "x")),
    "what looks like a list but is none": ("CMD [ -f x ]", (), ("/bin/sh", "-c", "[ -f x ]")),
    "lower case": ('entrypoint ["a"]', ("a",), ()),
    "lines that go on, with a comment between": (
        "CMD a && \\\n# why\n\n    b",
        (),
        ("/bin/sh", "-c", "a &&      b"),
    ),
    "an inline file in between": ("RUN <<EOF\nCMD no\nEOF\nCMD yes", (), ("/bin/sh", "-c", "yes")),
}


@pytest.mark.parametrize(("lines", "entrypoint", "command"), STARTS.values(), ids=STARTS)
def test_entrypoint_and_command(lines, entrypoint, command):
    config = parse(f"FROM x\n{lines}\n")
    assert (config.entrypoint, config.command) == (entrypoint, command)


ENVIRONMENTS = {
    "one with an equals sign": ("ENV A=1", {"A": "1"}),
    "several, quoted": ("ENV A=1 B='two words' C=\"3\"", {"A": "1", "B": "two words", "C": "3"}),
    "with a blank, as in old files": ("ENV A some words", {"A": "some words"}),
    "one that uses another": ("ENV A=1\nENV B=${A}2 C=$A", {"A": "1", "B": "12", "C": "1"}),
    "an argument": ("ARG V=2.6\nENV P=paddle-$V", {"P": "paddle-2.6"}),
    "a default": ("ENV A=${B:-c}", {"A": "c"}),
    "an alternative": ("ENV B=1\nENV A=${B:+c}${D:+e}", {"B": "1", "A": "c"}),
    "an escaped dollar": (r"ENV A=\$B", {"A": "$B"}),
}


@pytest.mark.parametrize(("lines", "expected"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environment(lines, expected):
    assert parse(f"FROM x\n{lines}\n").environment == expected


COPIES = {
    "a directory, as in the documents": (
        "ADD wide_and_deep /wide_and_deep",
        Copy(("wide_and_deep",), "/wide_and_deep"),
    ),
    "into a directory": ("COPY a.py b.py /app/", Copy(("a.py", "b.py"), "/app/")),
    "relative to the working directory": ("WORKDIR /app\nCOPY . .", Copy((".",), "/app/")),
    "as a list": ('COPY ["a b.py", "/app/"]', Copy(("a b.py",), "/app/")),
    "with an owner": ("COPY --chown=me:us a /b", Copy(("a",), "/b")),
}


@pytest.mark.parametrize(("lines", "expected"), COPIES.values(), ids=COPIES)
def test_copies(lines, expected):
    assert parse(f"FROM x\n{lines}\n").copies == (expected,)


LEFT_OUT = ["COPY --from=build /a /b", "ADD https://example.org/x /x"]


@pytest.mark.parametrize("line", LEFT_OUT)
def test_instructions_that_need_a_build_are_noted(line):
    config = parse(f"FROM x\n{line}\n")
    assert config.copies == ()
    assert line in config.notes[0]


def test_relative_workdirs_are_joined():
    assert parse("FROM x\nWORKDIR /a\nWORKDIR b\n").workdir == "/a/b"


def test_the_last_stage_counts_and_may_build_on_an_earlier_one():
    text = 'FROM x AS base\nWORKDIR /a\nCMD ["b"]\nFROM y\nCMD ["c"]\nFROM base\nENV A=1\n'
    config = parse(text)
    assert (config.workdir, config.command, config.environment) == ("/a", ("b",), {"A": "1"})


def test_a_new_entrypoint_resets_the_command_of_the_base_image():
    base = ImageConfig(command=("old",), workdir="/base", environment={"A": "1"})
    config = parse('FROM known\nENTRYPOINT ["new"]\n', {"known": base}.get)
    assert (config.entrypoint, config.command, config.workdir) == (("new",), (), "/base")


def test_an_argument_may_name_the_base_image():
    base = ImageConfig(workdir="/base")
    assert parse("ARG V=1\nFROM known:$V\n", {"known:1": base}.get).workdir == "/base"


def test_a_dockerfile_without_from_is_refused():
    with pytest.raises(ValueError, match="no FROM"):
        parse("CMD x\n")


def test_comments_and_blank_lines_are_skipped():
    assert list(instructions("# c\n\nFROM x\n")) == [("FROM", "x")]
