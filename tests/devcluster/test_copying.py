from __future__ import annotations

import os

import pytest

from devcluster.copying import Context, Copy
from devcluster.dockerfile import Ignored
from devcluster.programs import DevclusterError


@pytest.fixture
def context(tmp_path):
    directory = tmp_path / "context"
    (directory / "src" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "src/one.py", "src/deep/two.py", "src/two.pyc"):
        (directory / name).write_text(name)
    return Context(directory, Ignored("**/*.pyc"))


def targets(files):
    return sorted(target for _, target in files)


@pytest.mark.parametrize(
    ("sources", "target", "result"),
    [
        pytest.param(["a.txt"], "/opt/x", ["/opt/x"], id="a file gets the target's name"),
        pytest.param(["a.txt"], "/opt/", ["/opt/a.txt"], id="or goes into a directory"),
        pytest.param(["*.txt"], "/opt/", ["/opt/a.txt", "/opt/b.txt"], id="patterns"),
        pytest.param(
            ["src"], "/app", ["/app/deep", "/app/deep/two.py", "/app/one.py"], id="what is in a directory"
        ),
    ],
)
def test_copy_knows_what_goes_where(context, sources, target, result):
    assert targets(context.select(sources, target)) == result


@pytest.mark.parametrize(
    ("sources", "target", "message"),
    [
        pytest.param(["none"], "/x", "COPY none: there is no such file", id="a source that is not there"),
        pytest.param(["src/two.pyc"], "/x", "no such file", id="a source that is left out"),
        pytest.param(["a.txt", "b.txt"], "/x", "ends with /", id="two files in the place of one"),
    ],
)
def test_a_copy_that_makes_no_sense_is_refused(context, sources, target, message):
    with pytest.raises(DevclusterError, match=message):
        context.select(sources, target)


def test_the_rules_beside_a_dockerfile_win_over_those_of_the_directory(tmp_path):
    (tmp_path / ".dockerignore").write_text("a")
    (tmp_path / "Dockerfile.dockerignore").write_text("b")
    ignored = Context.of(tmp_path, tmp_path / "Dockerfile").ignored
    assert ("a" in ignored, "b" in ignored) == (False, True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: path.write_text("other"), id="the content"),
        pytest.param(lambda path: path.chmod(0o755), id="the mode"),
    ],
)
def test_the_digest_changes_with_what_arrives(context, change):
    copy = Copy(context.select(["a.txt"], "/x"))
    before = copy.digest()
    change(context.directory / "a.txt")
    assert copy.digest() != before


def test_the_digest_does_not_change_with_the_time(context):
    copy = Copy(context.select(["a.txt"], "/x"))
    before = copy.digest()
    os.utime(context.directory / "a.txt", (1, 1))
    assert copy.digest() == before


def test_files_arrive_with_mode_owner_and_links(context, tmp_path):
    (context.directory / "src" / "link").symlink_to("one.py")
    (context.directory / "src" / "one.py").chmod(0o640)
    owner = (os.getuid(), os.getgid())
    Copy(context.select(["src"], "/app"), owner).perform(tmp_path / "tree")
    arrived = tmp_path / "tree" / "app"
    assert (arrived / "link").readlink().name == "one.py"
    assert (arrived / "one.py").stat().st_mode & 0o777 == 0o640
    assert (arrived / "deep" / "two.py").read_text() == "src/deep/two.py"
