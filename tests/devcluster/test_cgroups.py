from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.node.cgroups import group_name, has_memory_limits, make_groups, remove_groups

HERE, ELSEWHERE = Path("/clusters/here"), Path("/clusters/elsewhere")


@pytest.fixture
def old(tmp_path):
    """Hierarchies of version 1: one a controller."""
    for controller in ("memory", "cpu", "cpuset"):
        (tmp_path / controller).mkdir()
        for file in ("cgroup.procs", "tasks"):
            (tmp_path / controller / file).touch()
    for setting, value in (("cpuset.cpus", "0-1"), ("cpuset.mems", "0")):
        (tmp_path / "cpuset" / setting).write_text(value)
    (tmp_path / "unrelated").mkdir()
    return tmp_path


@pytest.fixture
def unified(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def test_two_clusters_have_two_groups():
    assert group_name(HERE) != group_name(ELSEWHERE)


def test_memory_limits_are_found_in_the_old_hierarchies(old):
    assert has_memory_limits(old)


def test_memory_limits_are_found_in_the_unified_hierarchy(unified):
    assert has_memory_limits(unified)


def test_a_machine_without_control_groups_has_no_memory_limits(tmp_path):
    assert not has_memory_limits(tmp_path)


def test_a_group_is_made_in_every_old_hierarchy_and_has_its_parents_processors(old):
    make_groups(HERE, old)
    made = {path.parent.name for path in old.glob(f"*/{group_name(HERE)}")}
    assert made == {"memory", "cpu", "cpuset"}
    assert (old / "cpuset" / group_name(HERE) / "cpuset.cpus").read_text() == "0-1"


def test_one_group_is_made_in_the_unified_hierarchy(unified):
    make_groups(HERE, unified)
    assert (unified / group_name(HERE)).is_dir()
    assert (unified / "cgroup.subtree_control").read_text() == "+cpu +cpuset +io +memory +pids"


def test_groups_are_removed_with_what_is_below_and_others_stay(old):
    for directory in (HERE, ELSEWHERE):
        (old / "memory" / group_name(directory) / "kubepods" / "pod1").mkdir(parents=True)
    remove_groups(HERE, old)
    assert [path.name for path in (old / "memory").iterdir() if path.is_dir()] == [group_name(ELSEWHERE)]
