from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.build.compile import Progress, about, ensure
from devcluster.build.programs import binary
from devcluster.errors import DevclusterError

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def progress():
    return Progress(io.StringIO())


@pytest.mark.parametrize(
    ("seconds", "text"), [(20, "about 20 seconds"), (95, "about 2 minutes"), (420, "about 7 minutes")]
)
def test_durations_are_said_as_a_person_would(seconds, text):
    assert about(seconds) == text


def test_a_missing_program_is_built_with_its_flags(cache, go, progress):
    path = ensure(["pki"], progress=progress)["pki"]
    assert path == binary("pki").path
    assert path.read_text() == "built\n"
    assert go.calls()[0].startswith("build -trimpath -buildvcs=false -ldflags=-s -w -o ")


def test_a_program_in_the_cache_is_found_without_calling_go(cache, go, progress):
    ensure(["pki"], progress=progress)
    ensure(["pki"], progress=progress)
    assert len(go.calls()) == 1


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(cache, go, progress):
    go.behave("echo undefined: frobnicate; exit 2")
    with pytest.raises(DevclusterError, match=r"(?s)Building pki local failed .*ended with 2.*frobnicate"):
        ensure(["pki"], progress=progress)
    assert list((cache / "bin").iterdir()) == []


def test_two_processes_build_a_program_once(cache, go):
    go.behave('sleep 0.3; echo built > "$2"')
    command = [sys.executable, "-c", "from devcluster.build.compile import ensure; ensure(['pki'])"]
    builders = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [builder.wait() for builder in builders] == [0, 0]
    assert len(go.calls()) == 1


def test_progress_says_what_is_built_and_what_to_expect(cache, go):
    stream = io.StringIO()
    ensure(["pki"], progress=Progress(stream))
    first, last = stream.getvalue().splitlines()
    assert first == "building pki local ... (about 20 seconds the first time)"
    assert last == "built pki local in 0 s"


def test_progress_repeats_itself_while_the_build_runs(cache, go):
    go.behave('while [ ! -e "$2.go" ]; do sleep 0.01; done; echo built > "$2"')
    stream = io.StringIO()
    progress = Progress(stream)
    progress.interval_seconds = 0.01
    say_line = progress.update

    def release_the_build_after_three_lines(text):
        say_line(text)
        if stream.getvalue().count("\n") == 3:
            (scratch,) = (cache / "bin").glob(".building-*")
            (scratch / "pki.go").touch()

    progress.update = release_the_build_after_three_lines
    ensure(["pki"], progress=progress)
    assert stream.getvalue().splitlines()[2].startswith("building pki local ... 0 s (about")


def test_a_terminal_sees_one_line_rewritten():
    stream = Terminal()
    progress = Progress(stream)
    progress.update("one")
    progress.say("two")
    assert stream.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\n"
