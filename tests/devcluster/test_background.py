from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.control_plane.background import SERVER_RECORD, Background
from devcluster.control_plane.plane import PROCESS_RECORDS
from devcluster.control_plane.server import as_json, from_json
from devcluster.errors import DevclusterError
from devcluster.processes import Record, write_records
from devcluster.settings import ClusterSettings

ROOT = Path(__file__).parents[2]


def test_settings_survive_a_file():
    settings = ClusterSettings(
        components=("etcd", "kube-apiserver"),
        feature_gates={"A": True},
        extra_args={"etcd": ("--log-level=warn",)},
    )
    assert from_json(as_json(settings)) == settings


def test_down_without_a_cluster_does_nothing(tmp_path):
    assert not Background(tmp_path / "none").down()


def test_connecting_to_nothing_says_how_to_start(tmp_path):
    with pytest.raises(DevclusterError, match="python -m devcluster up"):
        Background(tmp_path / "none").connect()


SERVE_WITHOUT_AN_ORDER = """
import os, sys
from pathlib import Path
from devcluster.control_plane import server
try:
    server.serve(Path("/nonexistent"))
except FileNotFoundError:
    print(os.path.exists("/proc/self/fd/" + sys.argv[1]))
"""


def test_a_server_keeps_no_descriptor_of_its_starter(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        command = [sys.executable, "-c", SERVE_WITHOUT_AN_ORDER, str(lock.fileno())]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, pass_fds=[lock.fileno()], env=variables, capture_output=True, text=True, check=True
        )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("file", [SERVER_RECORD, PROCESS_RECORDS])
def test_down_ends_what_a_crash_left_behind_and_nothing_else(tmp_path, file):
    background = Background(tmp_path / "left")
    background.directory.mkdir()
    with subprocess.Popen(["sleep", "600"]) as leftover, subprocess.Popen(["sleep", "600"]) as stranger:
        reused = dataclasses.replace(Record.of("etcd", stranger.pid), start_ticks=1)
        write_records(background.directory / file, [reused, Record.of("etcd", leftover.pid)])
        assert background.down()
        assert (leftover.wait(), stranger.poll()) == (-9, None)
        stranger.kill()
    assert not background.directory.exists()
