from __future__ import annotations

import gzip
import os

import pytest

from paddlejob.plainjob.data.inputs import TRAINING_NAMES, gather
from paddlejob.plainjob.errors import DataError
from plainjob.line_files import lines, write


@pytest.fixture
def data(tmp_path):
    for name in ("part-000.txt", "part-001.txt", "test.txt", "dict/words.txt", ".hidden"):
        write(tmp_path / "data" / name, lines(3))
    return tmp_path / "data"


def names(sources):
    return [source.name for source in sources]


def test_a_directory_is_training_data_and_the_rest(data, tmp_path):
    found = gather([data], [], TRAINING_NAMES, tmp_path / "job")
    assert names(found.split) == ["part-000.txt", "part-001.txt"]
    assert names(found.shared) == ["dict/words.txt", "test.txt"]


def test_a_file_is_split_whatever_its_name(data, tmp_path):
    found = gather([data / "test.txt"], [data / "dict"], TRAINING_NAMES, tmp_path / "job")
    assert (names(found.split), names(found.shared)) == (["test.txt"], ["words.txt"])


def test_a_pattern_may_name_a_directory(data, tmp_path):
    found = gather([data], [], ["dict/*"], tmp_path / "job")
    assert names(found.split) == ["dict/words.txt"]


def bad_pipe(data):
    os.mkfifo(data / "train.pipe")
    return data / "train.pipe"


def bad_compressed(data):
    return write(data / "train.gz", gzip.compress(lines(9)))


def bad_namesake(data):
    write(data / "other" / "test.txt", b"x\n")
    return data / "other" / "test.txt"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda data: data / "nothing", "cannot read .*/nothing: No such file", id="a missing input"
        ),
        pytest.param(bad_pipe, "is not a regular file", id="a pipe"),
        pytest.param(bad_compressed, r"is compressed \(gzip\)", id="a compressed file"),
        pytest.param(bad_namesake, "would both be 'test.txt' in a shard", id="two files of one name"),
        pytest.param(
            lambda data: data / "dict", r"no file in .*/dict is called 'train\*' or", id="no training file"
        ),
    ],
)
def test_refused(data, tmp_path, make, message):
    bad = make(data)
    with pytest.raises(DataError, match=message):
        gather([bad], [data / "test.txt"], TRAINING_NAMES, tmp_path / "job")


def test_a_job_inside_its_own_input_is_refused(data):
    with pytest.raises(DataError, match="lies inside the input"):
        gather([data], [], TRAINING_NAMES, data / "job")
