"""Files out of a container and into one; the container is not trusted with anything but the target."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile

import pytest

from paddlejob.client.errors import ClientError
from paddlejob.client.streams.copying import copy_from, copy_to

DATA = b"theirs"
NOT_ASKED_FOR, REFUSED = "which was not asked for", "refused a member of the archive"
THROUGH_LINK = "goes through a symbolic link"


def member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, linkname, 0o755
    info.size = len(DATA) if kind == tarfile.REGTYPE else 0
    return info


def directory(name: str) -> tarfile.TarInfo:
    return member(name, tarfile.DIRTYPE)


def symlink(name: str, to: str) -> tarfile.TarInfo:
    return member(name, tarfile.SYMTYPE, to)


def hard_link(name: str, to: str) -> tarfile.TarInfo:
    return member(name, tarfile.LNKTYPE, to)


def container(*members: tarfile.TarInfo):
    """Return a container whose tar sends just this."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(DATA) if each.isreg() else None)

    async def run(given) -> int:
        given.on_stdout(packed.getvalue())
        return 0

    return run


async def own_machine(given) -> int:
    """Run a command as a container would whose files are those of this machine."""
    stdin = b"".join([chunk async for chunk in given.stdin]) if given.stdin else b""
    ran = await asyncio.to_thread(subprocess.run, given.words, input=stdin, capture_output=True, check=False)
    given.on_stdout(ran.stdout)
    given.on_stderr(ran.stderr)
    return ran.returncode


def copied(run, source, target):
    return asyncio.run(copy_from(run, str(source), target))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member("../evil")], NOT_ASKED_FOR),
        ([member("output/../../evil")], NOT_ASKED_FOR),
        ([member("/etc/evil")], NOT_ASKED_FOR),
        ([member("outputs")], NOT_ASKED_FOR),
        ([symlink("output/l", "../hooks"), member("output/l/pre-commit")], REFUSED),
        ([symlink("output/l", "/tmp"), member("output/l/evil")], REFUSED),
        ([symlink("output", "hooks"), member("output/pre-commit")], "copy hooks, which it leads to"),
        ([directory("output/d"), symlink("output/l", "d"), member("output/l/x")], THROUGH_LINK),
        # Each link stays inside when it is made; the second one then takes the first one outside.
        (
            [
                symlink("output/out", "a/up/../hooks"),
                directory("output/a"),
                symlink("output/a/up", ".."),
                member("output/out/pre-commit"),
            ],
            THROUGH_LINK,
        ),
        ([hard_link("output/h", "mine"), member("output/h")], NOT_ASKED_FOR),
        ([hard_link("output/h", "../mine"), member("output/h")], NOT_ASKED_FOR),
        ([hard_link("output/h", "output/never")], "a link to a file that it did not send"),
        ([symlink("output/l", "x"), hard_link("output/h", "output/l")], THROUGH_LINK),
        ([hard_link("output", "mine"), member("output")], "neither a file nor a directory"),
        ([member("output/fifo", tarfile.FIFOTYPE)], REFUSED),
    ],
)
def test_a_container_cannot_write_outside_of_the_target(members, why, tmp_path):
    (tmp_path / "hooks").mkdir()
    (tmp_path / "mine").write_text("mine")
    if members[0].name.startswith("output/"):
        members = [directory("output"), *members]
    with pytest.raises(ClientError, match=why):
        copied(container(*members), "/output", tmp_path / "output")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not list((tmp_path / "hooks").iterdir())
    assert {each.name for each in tmp_path.iterdir()} <= {"hooks", "mine", "output"}


def test_a_link_of_an_earlier_copy_is_not_followed(tmp_path):
    outside = tmp_path / "mine"
    outside.write_text("mine")
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "symbolic").symlink_to(outside)
    (tmp_path / "output" / "hard").hardlink_to(outside)
    names = ("output/symbolic", "output/hard")
    copied(container(directory("output"), *map(member, names)), "/output", tmp_path)
    assert [(tmp_path / each).read_bytes() for each in names] == [DATA, DATA]
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("first", [directory("output"), member("output")])
def test_a_target_that_is_a_symbolic_link_is_named(first, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "output").symlink_to("there")
    with pytest.raises(ClientError, match="output is a symbolic link: remove it, or choose another target"):
        copied(container(first), "/output", tmp_path)
    assert not list((tmp_path / "there").iterdir())


def test_links_within_a_directory_are_copied_also_under_another_name_and_again(tmp_path):
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "a").write_text("A")
    (made / "deep" / "b").hardlink_to(made / "a")
    (made / "deep" / "l").symlink_to("../a")
    # As the kubelet mounts a ConfigMap.
    (made / "..data").symlink_to("deep")
    named = tmp_path / "named"
    # Under the name, into the directory, and over what is there.
    places = [copied(own_machine, made, named) for _ in range(3)]
    assert places == [named, named / "made", named / "made"]
    for place in places:
        assert (place / "a").samefile(place / "deep" / "b")
        assert [str((place / each).readlink()) for each in ("deep/l", "..data")] == ["../a", "deep"]


def test_an_archive_that_cannot_be_read_is_named(tmp_path):
    async def run(given) -> int:
        given.on_stdout(b"welcome to this image\n" * 100)
        return 0

    with pytest.raises(ClientError, match="an archive that cannot be read"):
        copied(run, "/output", tmp_path / "output")


def test_what_cannot_be_read_here_is_named(tmp_path):
    source = tmp_path / "source"
    source.write_text("x")

    async def run(given) -> int:
        # The file goes while the container is asked whether the target is a directory.
        source.unlink(missing_ok=True)
        return await own_machine(given)

    with pytest.raises(ClientError, match=f"cannot read {source}: No such file or directory"):
        asyncio.run(copy_to(run, source, str(tmp_path / "copy")))
