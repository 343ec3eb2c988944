"""`paddlejob ui` and `kubectl pdj ui` as processes: the link, and Ctrl+C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from paddlejob.cli.show import ui

LINK = re.compile(r"Dashboard: (http://127\.0\.0\.1:\d+/)\?token=(\S+)")


def test_the_browser_is_opened_without_the_token_among_its_arguments():
    link = "http://127.0.0.1:1/?token=secret"
    with ui._page_to(link) as page:
        assert "secret" not in page
        path = Path(page.removeprefix("file://"))
        assert link in path.read_text()
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("program", ["paddlejob.cli.main", "paddlejob.cli.kubectl"])
def test_the_link_is_printed_and_the_server_ends_when_interrupted(tmp_path: Path, program: str):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        'clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]\n'
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PADDLEJOB_RUNS": str(tmp_path / "runs")}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", program, "ui"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        url, token = LINK.fullmatch(process.stdout.readline().strip()).groups()
        assert "Press Ctrl+C to stop" in process.stdout.readline()
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(url)
        refused.value.close()
        with urllib.request.urlopen(f"{url}?token={token}") as page:
            assert b"<title>PaddleJob</title>" in page.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert errors == ""
    assert process.returncode == 130
