from __future__ import annotations

import shutil

import pytest

from paddlejob.plainjob.data.writer import Writer
from paddlejob.plainjob.errors import DataError, SettingsError
from paddlejob.plainjob.run.pod import check_job, fill_workspace
from paddlejob.plainjob.settings import JobSettings
from plainjob.line_files import lines, run_split, write


@pytest.fixture
def settings(tmp_path):
    found = JobSettings(job_name="job", job_path=tmp_path, train_config_dir="conf")
    write(tmp_path / "in" / "train.txt", lines(9))
    write(tmp_path / "in" / "dict" / "words", b"words\n")
    config = write(tmp_path / "conf" / "train.py", b"pass\n").parent
    run_split(found.job_directory, 3, tmp_path / "in", config_directories=(config,))
    return found


def fill(settings, trainer, directory):
    return fill_workspace(settings, trainer, directory, Writer(lambda _size: None, durable=False)).data


def test_scripts_and_the_own_shard_are_copied(settings, tmp_path):
    data = fill(settings, 1, tmp_path / "work")
    assert (tmp_path / "work" / "train.py").read_bytes() == b"pass\n"
    assert (data / "train.txt").read_bytes() == b"line 3\nline 4\nline 5\n"
    assert (data / "dict" / "words").read_bytes() == b"words\n"


def test_a_directory_that_was_used_before_is_emptied_of_the_old_shard(settings, tmp_path):
    write(fill(settings, 1, tmp_path / "work") / "old.txt", b"old\n")
    assert sorted(path.name for path in fill(settings, 2, tmp_path / "work").iterdir()) == [
        "dict",
        "train.txt",
    ]
    assert (tmp_path / "work" / "data" / "train.txt").read_bytes() == b"line 6\nline 7\nline 8\n"


def test_data_beside_the_scripts_stays_behind(settings, tmp_path):
    write(settings.config_directory / "data" / "train.txt", b"all of it\n")
    write(settings.config_directory / "model" / "data" / "words.py", b"pass\n")
    data = fill(settings, 1, tmp_path / "work")
    assert (data / "train.txt").read_bytes() == b"line 3\nline 4\nline 5\n"
    assert (tmp_path / "work" / "model" / "data" / "words.py").exists()


def test_a_persons_own_directory_is_not_touched(settings, tmp_path):
    mine = write(tmp_path / "mine" / "data" / "train.txt", b"mine\n")
    with pytest.raises(SettingsError, match="is not empty"):
        fill(settings, 1, tmp_path / "mine")
    assert mine.read_bytes() == b"mine\n"


def test_a_damaged_shard_is_not_trained_with(settings, tmp_path):
    write(settings.job_directory / "1" / "data" / "train.txt", b"line 3\nline 4\nline X\n")
    with pytest.raises(DataError, match=r"1/data/train.txt differs from its checksum"):
        fill(settings, 1, tmp_path / "work")


def test_data_without_any_manifest_is_copied_as_it_is(settings, tmp_path):
    for path in settings.job_directory.rglob("manifest.json"):
        path.unlink()
    write(settings.job_directory / "1" / "data" / "train.txt", b"by hand\n")
    check_job(settings, 3)
    assert (fill(settings, 1, tmp_path / "work") / "train.txt").read_bytes() == b"by hand\n"


def test_a_shard_whose_manifest_is_gone_is_not_trained_with(settings, tmp_path):
    (settings.job_directory / "1" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"job/1 is not part of the split of .*: split the data again"):
        fill(settings, 1, tmp_path / "work")


def test_a_shard_of_another_split_is_not_trained_with(settings, tmp_path):
    write(tmp_path / "other" / "train.txt", lines(9, "other"))
    other = JobSettings(job_name="other-job", job_path=tmp_path, train_config_dir="conf")
    run_split(other.job_directory, 3, tmp_path / "other")
    shutil.rmtree(settings.job_directory / "1")
    (other.job_directory / "1").rename(settings.job_directory / "1")
    with pytest.raises(DataError, match="job/1 is not part of the split"):
        fill(settings, 1, tmp_path / "work")


def test_a_shard_in_the_place_of_another_is_not_trained_with(settings, tmp_path):
    shutil.rmtree(settings.job_directory / "1")
    (settings.job_directory / "2").rename(settings.job_directory / "1")
    with pytest.raises(DataError, match="is the manifest of shard 2"):
        fill(settings, 1, tmp_path / "work")


def test_an_unfinished_split_is_not_trained_with(settings, tmp_path):
    (settings.job_directory / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"the split in .* is not finished: run the same"):
        check_job(settings, 3)
    with pytest.raises(DataError, match=r"the split in .* is not finished: run the same"):
        fill(settings, 1, tmp_path / "work")


@pytest.mark.parametrize("gone", [["train.txt"], ["dict/words"], ["train.txt", "dict/words"]])
def test_a_shard_that_lacks_a_file_is_not_trained_with(settings, tmp_path, gone):
    for name in gone:
        (settings.job_directory / "1" / "data" / name).unlink()
    with pytest.raises(DataError, match=f"1/data/{min(gone)} is missing: split the data again"):
        fill(settings, 1, tmp_path / "work")


def test_a_file_that_no_manifest_lists_is_named(settings, tmp_path):
    write(settings.job_directory / "1" / "data" / ".nfs0001", b"kept by NFS\n")
    fill(settings, 1, tmp_path / "work")
    write(settings.job_directory / "1" / "data" / "more.txt", b"by hand\n")
    with pytest.raises(DataError, match=r"1/data/more.txt is not part of the split: move it away"):
        fill(settings, 1, tmp_path / "work")


def test_a_manifest_of_bottomless_depth_is_refused(settings):
    write(settings.job_directory / "manifest.json", b'{"deep":' + b"[" * 100_000)
    with pytest.raises(DataError, match="is not a manifest"):
        check_job(settings, 3)


def test_a_missing_shard_is_named(settings, tmp_path):
    with pytest.raises(DataError, match=r"there is no shard for trainer 3: .*/job/3/data is missing"):
        fill(settings, 3, tmp_path / "work")


def test_data_for_another_number_of_trainers_is_refused(settings):
    check_job(settings, 3)
    with pytest.raises(DataError, match="is split into 3 shards, but the Job has 4 trainers"):
        check_job(settings, 4)


def test_missing_scripts_are_named(tmp_path):
    with pytest.raises(DataError, match=r"TRAIN_CONFIG_DIR .*/job/conf is not a directory"):
        check_job(JobSettings(job_name="job", job_path=tmp_path, train_config_dir="conf"), 3)
