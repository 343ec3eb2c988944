"""A split that dies before any of its file operations leaves what can be resumed, or is refused: no mixture.

From the fatal operation on, every later one fails too, as for a process that was killed: nothing is cleaned
up. The fatal write leaves half of its bytes.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import shutil

import pytest

from paddlejob.plainjob.data import scan, split
from paddlejob.plainjob.data.writer import Writer
from paddlejob.plainjob.errors import PlainJobError
from paddlejob.plainjob.run.pod import check_job, fill_workspace
from paddlejob.plainjob.settings import JobSettings
from plainjob.line_files import lines, run_split, tree, write

CHANGES = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "utime", "chmod")


class KilledError(BaseException):
    """Passes through every handler of errors."""


class Mortal:
    """Lets a process make so many changes to the file system, then none."""

    def __init__(self, monkeypatch, allowed):
        self._left = allowed
        for name in CHANGES:
            monkeypatch.setattr(os, name, self._guarded(getattr(os, name)))
        monkeypatch.setattr(os, "fsync", self._guarded(os.fsync))
        monkeypatch.setattr(os, "write", self._torn(os.write))
        monkeypatch.setattr(os, "open", self._opening(os.open, lambda flags: flags & os.O_CREAT))
        opening = self._opening(builtins.open, lambda mode: mode.strip("rbt"))
        monkeypatch.setattr(io, "open", opening)
        monkeypatch.setattr(builtins, "open", opening)

    def _spend(self):
        self._left -= 1
        if self._left < 0:
            raise KilledError

    def _guarded(self, call):
        def guarded(*arguments, **options):
            self._spend()
            return call(*arguments, **options)

        return guarded

    def _opening(self, call, changes):
        def opening(path, how="r", *arguments, **options):
            if changes(how):
                self._spend()
            return call(path, how, *arguments, **options)

        return opening

    def _torn(self, call):
        def torn(descriptor, content):
            self._left -= 1
            if self._left == -1:
                call(descriptor, content[: len(content) // 2])
            if self._left < 0:
                raise KilledError
            return call(descriptor, content)

        return torn


class Case:
    """A job before and after one command."""

    def __init__(self, tmp_path, before, after):
        self.tmp_path, self._before, self._after = tmp_path, before, after
        self.job = tmp_path / "jobs" / "job"
        for count, folder, options in before:
            self._run(count, folder, options)
        write(self.job / "output" / "pass-00009" / "model", b"precious")
        self._template = tmp_path / "template"
        self.counts = {count for count, _, _ in (*before, after)}
        self.outcomes = [self.trained(count) for count in self.counts]
        shutil.copytree(self.job, self._template)
        self.command()
        self.outcomes += [self.trained(count) for count in self.counts]
        self.wanted = tree(self.job)

    def _run(self, count, folder, options):
        source = self.tmp_path / folder
        return run_split(
            self.job,
            count,
            source / "in",
            **{"config_directories": (source / "conf",)} if (source / "conf").exists() else {},
            **options,
        )

    def command(self, **options):
        count, folder, given = self._after
        return self._run(count, folder, {**given, **options})

    def reset(self):
        shutil.rmtree(self.job)
        shutil.copytree(self._template, self.job)

    def killed_after(self, changes):
        """Return whether the command died before it was done."""
        with pytest.MonkeyPatch.context() as patches:
            Mortal(patches, changes)
            try:
                self.command()
            except KilledError:
                return True
        return False

    def trained(self, count):
        """Return all that the trainers of a Job get to see, None when it is refused."""
        settings = JobSettings(job_name="job", job_path=self.job.parent, train_config_dir="conf")
        work = self.tmp_path / "work"
        shutil.rmtree(work, ignore_errors=True)
        try:
            check_job(settings, count)
            for trainer in range(count):
                fill_workspace(settings, trainer, work / str(trainer), Writer(lambda _: None, durable=False))
        except PlainJobError:
            return None
        return tree(work)


FORCE = {"force": True}
CASES = {
    "the first split": ([], (3, "a", {})),
    "copies of shared files": ([], (2, "a", {"copy_shared": True})),
    "into more shards": ([(2, "a", {})], (3, "a", FORCE)),
    "into fewer shards": ([(3, "a", {})], (2, "a", FORCE)),
    "other content": ([(2, "a", {})], (2, "b", FORCE)),
    "other scripts": ([(2, "a", {})], (2, "c", FORCE)),
}
QUICK = ("the first split", "other scripts")


@pytest.fixture(autouse=True)
def small_and_in_order(monkeypatch):
    monkeypatch.setattr(scan, "BLOCK", 64)
    monkeypatch.setattr(split, "WRITERS", 1)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # the machine itself stays alive


@pytest.fixture
def inputs(tmp_path):
    for folder, word, script in (("a", "line", 1), ("b", "LINE", 2), ("c", "line", 2)):
        write(tmp_path / folder / "in" / "train.txt", lines(20, word))
        write(tmp_path / folder / "in" / "dict" / "words", word.encode())
        write(tmp_path / folder / "conf" / "train.py", f"print({script})\n".encode())
        write(tmp_path / folder / "conf" / "lib" / "net.py", f"layers = {script}\n".encode())


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(*splits, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, splits in CASES.items()
    ],
)
def test_a_split_killed_at_any_change_is_resumed_or_refused(tmp_path, before, after):
    case = Case(tmp_path, before, after)
    deaths = 0
    for allowed in itertools.count():
        case.reset()
        if not case.killed_after(allowed):
            break
        deaths += 1
        for count in case.counts:
            assert case.trained(count) in (None, *case.outcomes), allowed
        if allowed % 5 == 0:
            case.killed_after(allowed // 2)
        try:
            case.command(force=False)
        except PlainJobError:
            case.command()
        assert tree(case.job) == case.wanted, allowed
        assert [path.name for path in (case.job / ".split").iterdir()] == ["lock"]
    assert deaths > 20
    assert case.outcomes.count(None) < len(case.outcomes)
