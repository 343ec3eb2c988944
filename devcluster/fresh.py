"""Runs what the README shows in a Debian with nothing but Python and make, as root and as an ordinary user.

A step that installs something cannot hide there behind what a machine happens to have. Package indexes are
reached as this machine reaches them: its configuration of pip, Go and name resolution is passed on.
Compiling Kubernetes again would take ten minutes and show nothing new, so the large programs are copied from
the cache; the small one, pki, is built, and with it Go is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from devcluster.build.compile import Progress
from devcluster.build.programs import API_SERVER_PROGRAMS, binary
from devcluster.cache import cache_directory
from devcluster.errors import DevclusterError
from devcluster.images.base import Base, bootstrap
from devcluster.package_index import index_files, index_variables
from devcluster.requirements import ISOLATED, require_bootstrap

ROOT = Path(__file__).parent.parent
BASE = Base("bookworm", ("python3", "python3-venv", "make", "ca-certificates"))
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GO_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE")
CHECK = ".venv/bin/python -m devcluster check"
TIME_LIMIT_SECONDS = 1200
ENTER = Path(__file__).with_name("enter_root.py")
COPIED = tuple(name for name in API_SERVER_PROGRAMS if name != "pki")


@dataclass(frozen=True)
class Account:
    """A user who has just cloned the repository, and the commands to run as that user."""

    name: str
    uid: int
    commands: tuple[str, ...]

    @property
    def home(self) -> str:
        """Their home directory."""
        return "/root" if self.uid == 0 else f"/home/{self.name}"

    @property
    def checkout(self) -> str:
        """Directory of the clone."""
        return f"{self.home}/paddlejob"


PREDICT = '"$(python3 scripts/paddle_env.py 2.6.2)" examples/wide_and_deep/predict.py build/wide_and_deep'
DEMO = ("make demo", PREDICT, "test ! -e .venv/bin/pytest")
"""It leaves a model that predicts, and installs no tools of developers."""
TESTS = "-n 2 -q tests/apiserver/test_control_plane.py tests/behaviour tests/local/test_cli.py tests/deploy"
SMOKE = f"make venv && PYTHONHASHSEED=0 .venv/bin/python -m pytest {TESTS} -m 'not tools'"
"""A part of `make test` that meets every program it needs; all of it would take another five minutes."""
ACCOUNTS = (
    Account("root", 0, (*DEMO, SMOKE, CHECK)),
    # Only root can run a node; `check` has to print that.
    Account("user", 1000, (*DEMO, "make demo-resnet", SMOKE, f"{CHECK}; test $? = 1")),
)


def run(names: list[str]) -> int:
    """Run the commands of the named accounts, or of all; give the exit code.

    Raises: DevclusterError when this machine cannot make the system.
    """
    progress = Progress(sys.stderr)
    require_bootstrap(progress)
    home = cache_directory()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="fresh-") as scratch:
        base = Path(scratch) / "base"
        progress.say(f"making {BASE}")
        bootstrap(BASE, base)
        chosen = [account for account in ACCOUNTS if not names or account.name in names]
        outcomes = [_succeeds(account, base, Path(scratch), progress) for account in chosen]
    return 0 if all(outcomes) else 1


def _succeeds(account: Account, base: Path, scratch: Path, progress: Progress) -> bool:
    root = scratch / account.name
    # A copy and no overlay: local runs make overlays, which cannot stand on one.
    subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(root)], check=True)
    _prepare_home(account, root)
    for command in account.commands:
        progress.say(f"fresh: `{command}` as {account.name}")
        started = time.monotonic()
        code = _run(account, command, root)
        progress.say(f"fresh: `{command}` ended with {code} after {time.monotonic() - started:.0f} s")
        if code != 0:
            return False
    return True


def _prepare_home(account: Account, root: Path) -> None:
    """Make a home directory with a clean checkout and programs from the cache."""
    home = root / account.home.lstrip("/")
    _copy_checkout(root / account.checkout.lstrip("/"))
    programs = home / ".cache" / "paddlejob" / "bin"
    programs.mkdir(parents=True)
    for name in COPIED:
        program = binary(name).path
        if program.exists():
            shutil.copy2(program, programs)
    for path in (home, *home.rglob("*")):
        os.chown(path, account.uid, account.uid, follow_symlinks=False)


def _copy_checkout(target: Path) -> None:
    """Copy the tracked files, with uncommitted changes."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(listing, capture_output=True, text=True, check=True)
    for name in filter(None, answer.stdout.split("\0")):
        source, place = ROOT / name, target / name
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)


def _run(account: Account, command: str, root: Path) -> int:
    """Run a command in the system with our stdout and stderr, and return its exit code."""
    script = f"cd {account.checkout} && {{ {command}; }}"
    interpreter = [*ISOLATED, sys.executable, "-I", "-S"]
    enter = [*interpreter, str(ENTER), str(root), str(account.uid), script, *index_files()]
    try:
        return subprocess.run(
            enter, check=False, timeout=TIME_LIMIT_SECONDS, env=_environment(account)
        ).returncode
    except subprocess.TimeoutExpired:
        raise DevclusterError(f"`{command}` took more than {TIME_LIMIT_SECONDS} s.") from None


def _environment(account: Account) -> dict[str, str]:
    own = {"HOME": account.home, "USER": account.name, "PATH": PATH, "LANG": "C.UTF-8"}
    return {**index_variables(), **_go_settings(), **own}


def _go_settings() -> dict[str, str]:
    """Return the module proxy settings of this machine's Go, if it is installed."""
    if shutil.which("go") is None:
        return {}
    answer = subprocess.run(["go", "env", "-json", *GO_VARIABLES], capture_output=True, text=True, check=True)
    settings: dict[str, str] = json.loads(answer.stdout)
    return {name: value for name, value in settings.items() if value}
