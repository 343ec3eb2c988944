"""Where Wide & Deep resumes, and who reads which file."""

from __future__ import annotations

import pytest

from examples.wide_and_deep import checkpoint, sharing
from examples.wide_and_deep.checkpoint import Position


def save(directory, *positions: Position, servers: int = 2) -> None:
    for position in positions:
        path = directory / position.name
        path.mkdir(parents=True)
        checkpoint.mark_done(path, position, servers)


def test_names_sort_in_the_order_of_training():
    order = [Position(0, 2), Position(1), Position(1, 2), Position(1, 14), Position(2), Position(10)]
    assert sorted(position.name for position in order) == [position.name for position in order]


def test_the_latest_complete_checkpoint_is_where_to_resume(tmp_path):
    save(tmp_path, Position(1), Position(1, 6))
    (tmp_path / "pass-00002").mkdir()
    assert checkpoint.latest(tmp_path, servers=2) == (tmp_path / "pass-00001-files-0006", Position(1, 6))


@pytest.mark.parametrize("name", [".", "missing"], ids=["an empty directory", "no directory"])
def test_there_is_nothing_to_resume_in(tmp_path, name):
    assert checkpoint.latest(tmp_path / name, servers=2) is None


def test_another_number_of_servers_cannot_resume(tmp_path):
    save(tmp_path, Position(1), servers=2)
    with pytest.raises(checkpoint.CheckpointError, match="was written by 2 servers and this job has 3"):
        checkpoint.latest(tmp_path, servers=3)


def test_the_newest_three_are_kept(tmp_path):
    save(tmp_path, *(Position(epoch) for epoch in range(1, 6)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pass-00003", "pass-00004", "pass-00005"]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_workers_read_each_file_once_in_an_epoch(workers):
    names = [f"train-{index:03d}.txt" for index in range(16)]
    hands = [sharing.deal(names, 1, worker, workers) for worker in range(workers)]
    assert sorted(name for hand in hands for name in hand) == names
    assert max(map(len, hands)) - min(map(len, hands)) <= 1


def test_each_epoch_has_its_own_order_and_every_worker_the_same_one():
    names = [f"train-{index:03d}.txt" for index in range(16)]
    assert sharing.deal(names, 1, 0, 1) == sharing.deal(names, 1, 0, 1) != sharing.deal(names, 2, 0, 1)


def test_a_workers_own_rows_are_counted_in_its_own_files(tmp_path):
    (tmp_path / "train-003.txt").write_text("a\nb\n")
    (tmp_path / "test-000.txt").write_text("c\n")
    assert sharing.own_rows(tmp_path) == {"train-003.txt": 2}
