"""The guide to local runs is right: its commands run as they are written, and its options exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from local.processes import marked
from paddlejob.cli.main import main
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs" / name for name in ("local.md", "local.zh-CN.md")]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
SAVES = """
import os, time
os.makedirs("output", exist_ok=True)
open("output/final.pdparams", "w").write("weights")
print("done acc 0.97", flush=True)
while os.environ.get("FOREVER"):
    time.sleep(60)
"""


def commands(guide):
    """Return the commands in order, without their comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", guide.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


BACKGROUND = [
    "paddlejob run -d job.yaml",
    "paddlejob attach mnist",
    "paddlejob wait mnist-g679j --timeout 2h",
    "paddlejob stop mnist",
]
DEMOS = ["make demo", "make demo-resnet", "make demo DEMO_ARGS='--logs all'"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_command_of_the_guide_is_run_here(guide):
    assert commands(guide) == [*DEMOS, *BACKGROUND]


@pytest.fixture
def shell(tmp_path, command):
    """Run a line of the guide in a directory with a train.py, with ~/paddle as the guide has it."""
    home, directory = tmp_path / "home", tmp_path / "mine"
    directory.mkdir()
    home.mkdir()
    (home / "paddle").symlink_to(Path(sys.prefix))
    (directory / "train.py").write_text(SAVES)
    environ = {**command.environ, "HOME": str(home), "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin"}

    def run(*lines, **options):
        script = "set -e\n" + "\n".join(lines)
        arguments = {"cwd": directory, "env": environ, "capture_output": True, "text": True, **options}
        return subprocess.run(["bash", "-c", script], check=False, **arguments)

    run.environ, run.directory = environ, directory
    return run


def test_a_background_run_is_watched_waited_for_and_stopped(shell, command):
    start, attach, wait, stop = BACKGROUND
    shell("paddlejob init --name mnist")
    run = shell(start + " -e FOREVER=1").stdout.strip()
    try:
        assert re.fullmatch(r"mnist-\w{5}", run)
        with (shell.directory / "shown").open("wb") as shown:
            watcher = subprocess.Popen(
                shlex.split(f"{sys.prefix}/bin/{attach}"), env=shell.environ, stdout=shown
            )
        eventually(lambda: "done acc 0.97" in (shell.directory / "shown").read_text())
        waited = shell(wait.replace("mnist-g679j", run).replace("2h", "1s"))
        assert waited.returncode == 124
    finally:
        assert shell(stop).returncode == 0
        assert watcher.wait() == 130
    assert shell(f"paddlejob wait {run}").returncode == 1
    eventually(lambda: not marked(command.mark))


def verbs_and_options(guide):
    """Yield each verb of the tables with its options; the table of options is about `run`."""
    for row in re.findall(r"^\| (`.*?) \| ", guide.read_text(), flags=re.MULTILINE):
        verb = "run"
        for code in re.findall(r"`([^`]+)`", row.replace("\\|", "|")):
            words = code.replace("[", " ").replace("]", " ").split()
            if words[0] == "source":
                continue
            words = words[1:] if words[0] == "paddlejob" else words
            verb = verb if words[0].startswith("-") else words[0]
            options = [word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)]
            if options or code.startswith("paddlejob"):
                yield verb, tuple(options)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_option_of_the_guide_exists(guide):
    found = list(verbs_and_options(guide))
    assert {"run", "get", "logs", "delete", "init"} <= {verb for verb, _ in found}
    helps = {verb: CliRunner().invoke(main, [verb, "--help"]).stdout for verb in {verb for verb, _ in found}}
    for verb, options in found:
        assert helps[verb], verb
        for option in options:
            assert re.search(rf"(^|[\s,]){option}\b", helps[verb]), f"{verb} has no {option}"


def test_both_languages_show_the_same_commands_and_options():
    english, chinese = (list(verbs_and_options(guide)) for guide in GUIDES)
    assert english == chinese


@pytest.mark.paddle
@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_the_readmes_command_finds_paddle_data_and_program(readme, command):
    [line] = re.findall(r"^\.venv/bin/(paddlejob run .*)$", readme.read_text(), flags=re.MULTILINE)
    environ = {**command.environ, "PATH": f"{Path(sys.prefix) / 'bin'}:{command.environ['PATH']}"}
    done = subprocess.run(
        f"{line} --dry-run", shell=True, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Paddle 2.6.2" in done.stdout
