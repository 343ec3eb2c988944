from __future__ import annotations

import mmap

import pytest

from paddlejob.recorder import leftovers


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\n", 0),
        ("", 0),
        ("one two three\n", 0),
    ],
    ids=["version 2", "version 1", "old kernel", "empty", "unknown"],
)
def test_the_kernels_count_of_oom_kills_is_read(tmp_path, monkeypatch, text, kills):
    (tmp_path / "counter").write_text(text)
    counters = (str(tmp_path / "missing"), str(tmp_path / "counter"))
    monkeypatch.setattr(leftovers, "OOM_COUNTERS", counters)
    assert leftovers.oom_kills() == kills


def test_a_file_that_a_process_maps_or_that_is_no_file_of_training_stays(tmp_path):
    for name in ("paddle_7_mapped", "paddle_7_free", "paddle_x", "psm_link", "other"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "psm_link").unlink()
    (tmp_path / "psm_link").symlink_to(tmp_path / "other")
    (tmp_path / "nccl-directory").mkdir()
    with (tmp_path / "paddle_7_mapped").open("rb+") as file:
        mapped = mmap.mmap(file.fileno(), 1)
    with mapped:
        leftovers.remove_files(frozenset(), str(tmp_path))
        left = {each.name for each in tmp_path.iterdir()}
    assert left == {"paddle_7_mapped", "paddle_x", "psm_link", "other", "nccl-directory"}
    leftovers.remove_files(frozenset(), str(tmp_path))
    assert not (tmp_path / "paddle_7_mapped").exists()


def test_a_machine_without_shared_memory_has_nothing_to_remove(tmp_path):
    leftovers.remove_files(leftovers.files(str(tmp_path / "no")), str(tmp_path / "no"))
