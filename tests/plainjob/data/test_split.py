from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from paddlejob.plainjob.data import manifest, scan, split, writer
from paddlejob.plainjob.data.layout import By
from paddlejob.plainjob.data.progress import ProgressSink
from paddlejob.plainjob.data.split import verify
from paddlejob.plainjob.errors import DataError, PlainJobError, SpaceError
from plainjob.line_files import lines, run_split, shard, tree, write


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(scan, "BLOCK", 256)


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "in" / "train.txt", lines(100))


@pytest.fixture
def job(tmp_path):
    return tmp_path / "jobs" / "job"


@pytest.mark.parametrize("by", By)
@pytest.mark.parametrize("end", [b"", b"last line without an end"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_in_order_are_the_file(train, job, by, end, count):
    train.write_bytes(lines(100) + end)
    run_split(job, count, train, by=by)
    assert b"".join(shard(job, index) for index in range(count)) == train.read_bytes()
    assert all(shard(job, index).endswith(b"\n") for index in range(count - 1))


def test_shards_are_equal_to_one_line(train, job):
    report = run_split(job, 7, train)
    assert [one.lines for one in report.manifest.shards] == [15, 15, 14, 14, 14, 14, 14]
    assert [shard(job, index).count(b"\n") for index in range(7)] == [15, 15, 14, 14, 14, 14, 14]


def test_the_tree_is_the_documents(train, job):
    run_split(job, 3, train)
    assert sorted(path.name for path in job.iterdir() if not path.name.startswith(".")) == [
        "0", "1", "2", "SHA256SUMS", "manifest.json", "output",
    ]  # fmt: skip


def test_other_files_go_whole_to_every_shard_as_one_copy(train, job):
    write(train.parent / "test.txt", b"for all\n")
    run_split(job, 3, train.parent)
    assert [shard(job, index, "test.txt") for index in range(3)] == [b"for all\n"] * 3
    assert (job / "2/data/test.txt").stat().st_nlink == 3


@pytest.mark.parametrize("how", ["asked for", "no hard links"])
def test_shared_files_are_copied_when(train, job, how, monkeypatch):
    def refuse(self, _target):
        raise PermissionError(1, "Operation not permitted")

    if how == "no hard links":
        monkeypatch.setattr(type(job), "hardlink_to", refuse)
    write(train.parent / "test.txt", b"for all\n")
    run_split(job, 2, train.parent, copy_shared=how == "asked for")
    assert [(job / f"{index}/data/test.txt").stat().st_nlink for index in range(2)] == [1, 1]


def test_a_set_of_files_is_one_run_of_lines(tmp_path, job):
    for number in range(4):
        write(tmp_path / f"in/part-{number}", lines(10, f"part {number}"))
    run_split(job, 2, tmp_path / "in")
    assert sorted(path.name for path in (job / "0/data").iterdir()) == ["part-0", "part-1"]
    assert sorted(path.name for path in (job / "1/data").iterdir()) == ["part-2", "part-3"]


def test_each_file_of_a_set_can_be_cut(tmp_path, job):
    for name in ("train-a", "train-b"):
        write(tmp_path / "in" / name, lines(4, name))
    run_split(job, 2, tmp_path / "in", each=True)
    assert shard(job, 1, "train-a") == b"train-a 2\ntrain-a 3\n"
    assert shard(job, 1, "train-b") == b"train-b 2\ntrain-b 3\n"


def test_a_second_run_writes_nothing(train, job):
    run_split(job, 3, train)
    before = {path: path.stat().st_mtime_ns for path in job.rglob("*") if ".split" not in path.parts}
    assert run_split(job, 3, train).written == ()
    assert before == {path: path.stat().st_mtime_ns for path in job.rglob("*") if ".split" not in path.parts}


def test_a_damaged_shard_is_written_again(train, job):
    run_split(job, 3, train)
    wanted = tree(job)
    os.truncate(job / "1/data/train.txt", 3)
    assert run_split(job, 3, train).written == (1,)
    assert tree(job) == wanted


class BrokenError(Exception):
    pass


def run_broken(monkeypatch, job, train, blocks_allowed):
    """Let the disk fail in the middle of a later shard, as a kill would."""
    budget = iter(range(blocks_allowed))
    write_block = writer._Output.write

    def write_some(self, block):
        if next(budget, None) is None:
            raise BrokenError
        write_block(self, block)

    monkeypatch.setattr(writer._Output, "write", write_some)
    monkeypatch.setattr(split, "WRITERS", 1)
    run_split(job, 3, train)


@pytest.mark.parametrize("allowed", range(1, 6))
def test_an_interrupted_split_has_no_half_shard_and_goes_on(train, job, monkeypatch, allowed):
    with monkeypatch.context() as broken, pytest.raises(BrokenError):
        run_broken(broken, job, train, allowed)
    assert manifest.read_job(job) is None
    finished = split.shards_present(job)
    assert all(manifest.is_whole(job, one) for one in finished)
    report = run_split(job, 3, train)
    assert set(report.written) == {0, 1, 2} - {one.index for one in finished}
    assert b"".join(shard(job, index) for index in range(3)) == train.read_bytes()


def test_a_resumed_split_does_not_count_again(train, job, monkeypatch):
    with monkeypatch.context() as broken, pytest.raises(BrokenError):
        run_broken(broken, job, train, 3)
    monkeypatch.setattr("paddlejob.plainjob.data.split.count_lines", None)
    assert run_split(job, 3, train).manifest.shards[0].lines == 34


def test_a_resumed_split_finds_its_inputs_where_they_are_mounted_now(train, job, tmp_path, monkeypatch):
    with monkeypatch.context() as broken, pytest.raises(BrokenError):
        run_broken(broken, job, train, 3)
    kept = {one.index for one in split.shards_present(job)}
    train.parent.rename(tmp_path / "elsewhere")
    report = run_split(job, 3, tmp_path / "elsewhere" / "train.txt")
    assert kept
    assert set(report.written) == {0, 1, 2} - kept
    assert b"".join(shard(job, index) for index in range(3)) == lines(100)


def test_the_same_content_elsewhere_with_another_time_is_the_same_split(train, job, tmp_path):
    run_split(job, 3, train)
    assert run_split(job, 3, write(tmp_path / "again" / "train.txt", lines(100))).written == ()


@pytest.mark.parametrize("by", By)
def test_other_content_of_the_same_length_and_time_is_another_split(train, job, by):
    run_split(job, 3, train, by=by)
    times = (train.stat().st_atime_ns, train.stat().st_mtime_ns)
    train.write_bytes(lines(100, "LINE"))
    os.utime(train, ns=times)
    with pytest.raises(DataError, match="holds another split"):
        run_split(job, 3, train, by=by)
    run_split(job, 3, train, by=by, force=True)
    assert b"".join(shard(job, index) for index in range(3)) == lines(100, "LINE")


def test_unchanged_inputs_are_not_read_again(train, job, monkeypatch):
    run_split(job, 3, train)
    monkeypatch.setattr("paddlejob.plainjob.data.split.count_lines", None)
    assert run_split(job, 3, train).written == ()


def test_another_split_is_not_replaced_unasked(train, job):
    run_split(job, 3, train)
    with pytest.raises(DataError, match="holds another split, of other files or into 3 shards: use --force"):
        run_split(job, 2, train)


def test_a_forced_split_leaves_no_shard_of_the_old_one(train, job):
    run_split(job, 5, train)
    run_split(job, 2, train, force=True)
    assert [one.index for one in split.shards_present(job)] == [0, 1]
    assert shard(job, 0) + shard(job, 1) == train.read_bytes()


def test_a_strangers_directory_is_never_removed(train, job):
    write(job / "1" / "thesis.txt", b"precious")
    with pytest.raises(DataError, match="was not written by this command"):
        run_split(job, 3, train, force=True)
    assert (job / "1" / "thesis.txt").read_bytes() == b"precious"


def test_a_strangers_file_in_a_shard_is_never_removed(train, job):
    run_split(job, 3, train)
    note = write(job / "1" / "notes.txt", b"precious")
    with pytest.raises(DataError, match=r"1/notes.txt was not written by this command: move it away"):
        run_split(job, 2, train, force=True)
    assert (note.read_bytes(), split.manifest.read_job(job).split_count) == (b"precious", 3)


def test_too_many_shards_are_refused(train, job):
    with pytest.raises(DataError, match=r"SPLIT_COUNT is 101, but .*train.txt has only 100 lines"):
        run_split(job, 101, train)


def test_lines_longer_than_a_shard_are_refused_by_bytes(tmp_path, job):
    long = write(tmp_path / "train.txt", b"x" * 1000 + b"\ny\n")
    with pytest.raises(DataError, match="would be empty"):
        run_split(job, 3, long, by=By.BYTES)


def test_missing_space_is_noticed_before_writing(train, job, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((1, 1, 9, 9, 9, 1, 1, 1, 1, 255)))
    with pytest.raises(SpaceError, match=r"needs 790 B in .*, and only 9 B are free"):
        run_split(job, 3, train)
    assert split.shards_present(job) == []


def test_space_that_runs_out_while_writing_leaves_no_part(train, job, monkeypatch):
    def full(self, _block):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._Output, "write", full)
    with pytest.raises(SpaceError, match="finished shards are kept"):
        run_split(job, 3, train)
    assert [path.name for path in (job / ".split").iterdir() if path.is_dir()] == []


def test_an_unwritable_job_is_named(train, tmp_path):
    write(tmp_path / "file", b"")
    with pytest.raises(PlainJobError, match=r"cannot write .*/file/job: Not a directory"):
        run_split(tmp_path / "file" / "job", 2, train)


def test_two_splits_at_once_are_refused(train, job):
    (job / ".split").mkdir(parents=True)
    with (job / ".split/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PlainJobError, match="another split is writing"):
            run_split(job, 2, train)


def test_without_locks_two_runs_at_once_leave_whole_shards(train, job, monkeypatch):
    """The second run begins and ends while the first is in the middle of a shard."""
    fill = writer.ShardDraft.fill
    others = []

    def fill_beside_another_run(self, writer, pieces):
        entries = fill(self, writer, pieces)
        if not others:
            others.append(True)
            others.append(run_split(job, 3, train).written)
        return entries

    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(95, "not supported")))
    monkeypatch.setattr(writer.ShardDraft, "fill", fill_beside_another_run)
    monkeypatch.setattr(split, "WRITERS", 1)
    assert (run_split(job, 3, train).written, others[1]) == ((0, 1, 2), (0, 1, 2))
    verify(job, ProgressSink())
    assert b"".join(shard(job, index) for index in range(3)) == train.read_bytes()


def test_a_file_that_grows_while_it_is_split_is_noticed(train, job, monkeypatch):
    fill = writer.ShardDraft.fill

    def fill_and_grow(self, writer, pieces):
        entries = fill(self, writer, pieces)
        with train.open("ab") as stream:
            stream.write(b"more\n")
        return entries

    monkeypatch.setattr(writer.ShardDraft, "fill", fill_and_grow)
    with pytest.raises(DataError, match="changed while it was read"):
        run_split(job, 2, train)
    assert split.shards_present(job) == []


def test_checksums_are_those_of_sha256sum(train, job):
    write(train.parent / "test.txt", b"for all\n")
    run_split(job, 3, train.parent)
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=job, check=True, capture_output=True, text=True
    )
    assert done.stdout.count(": OK") == 6


def test_verify_accepts_what_was_written(train, job):
    run_split(job, 3, train)
    assert verify(job, ProgressSink()).split_count == 3


def test_verify_finds_one_wrong_byte(train, job):
    run_split(job, 3, train)
    content = bytearray((job / "2/data/train.txt").read_bytes())
    content[5] ^= 1
    (job / "2/data/train.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"2/data/train.txt differs from its checksum"):
        verify(job, ProgressSink())


def test_verify_refuses_an_unfinished_split(job):
    with pytest.raises(DataError, match="the split is not finished"):
        verify(job, ProgressSink())


def test_training_scripts_are_placed_next_to_the_shards(train, job, tmp_path):
    config = write(tmp_path / "quick_start" / "train.py", b"print(1)\n").parent
    write(config / "data" / "train.txt", b"an example's own data\n")
    for _ in range(2):
        run_split(job, 2, train, config_directories=(config,))
    assert [path.name for path in (job / "quick_start").glob("[!.]*")] == ["train.py"]


def test_edited_training_scripts_are_kept_unless_forced(train, job, tmp_path):
    config = write(tmp_path / "quick_start" / "train.py", b"print(1)\n").parent
    run_split(job, 2, train, config_directories=(config,))
    (job / "quick_start" / "train.py").write_bytes(b"edited\n")
    with pytest.raises(DataError, match=r"differs from .*: use --force"):
        run_split(job, 2, train, config_directories=(config,))
    run_split(job, 2, train, config_directories=(config,), force=True)
    assert (job / "quick_start" / "train.py").read_bytes() == b"print(1)\n"


@pytest.mark.parametrize("name", ["output", "0", "7", ".split", ".git", "manifest.json", "SHA256SUMS"])
def test_training_scripts_never_take_a_reserved_name(train, job, tmp_path, name):
    run_split(job, 2, train)
    write(job / "output" / "pass-00009" / "model", b"precious")
    before = tree(job)
    config = write(tmp_path / "scripts" / name / "train.py", b"print(1)\n").parent
    with pytest.raises(DataError, match="is reserved in OUT_DIR: rename"):
        run_split(job, 2, train, config_directories=(config,), force=True)
    assert tree(job) == before


def test_a_root_directory_is_not_taken_for_scripts(train, job):
    with pytest.raises(DataError, match="--config-dir /: the name '' is reserved"):
        run_split(job, 2, train, config_directories=(Path("/"),), force=True)


def test_a_directory_of_a_person_is_never_replaced_by_scripts(train, job, tmp_path):
    config = write(tmp_path / "notes" / "train.py", b"print(1)\n").parent
    write(job / "notes" / "thesis.txt", b"precious")
    with pytest.raises(DataError, match=r"notes was not written by this command .*: move it away"):
        run_split(job, 2, train, config_directories=(config,), force=True)
    assert (job / "notes" / "thesis.txt").read_bytes() == b"precious"
    assert split.shards_present(job) == []


def test_scripts_edited_to_the_same_length_and_time_are_noticed(train, job, tmp_path):
    config = write(tmp_path / "conf" / "train.py", b"print(1)\n").parent
    for _ in range(2):
        run_split(job, 2, train, config_directories=(config,))
    edited = job / "conf" / "train.py"
    times = (edited.stat().st_atime_ns, edited.stat().st_mtime_ns)
    edited.write_bytes(b"print(2)\n")
    os.utime(edited, ns=times)
    with pytest.raises(DataError, match="use --force to replace it"):
        run_split(job, 2, train, config_directories=(config,))


def test_two_directories_of_scripts_of_one_name_are_refused(train, job, tmp_path):
    configs = [write(tmp_path / where / "conf" / "train.py", b"").parent for where in "ab"]
    with pytest.raises(DataError, match="have the same name"):
        run_split(job, 2, train, config_directories=tuple(configs))


def test_a_job_inside_its_scripts_is_refused(train, tmp_path):
    config = write(tmp_path / "conf" / "train.py", b"").parent
    with pytest.raises(DataError, match="lies inside --config-dir"):
        run_split(config / "job", 2, train, config_directories=(config,))
