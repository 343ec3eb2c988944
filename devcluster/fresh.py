"""Runs what the README shows in a Debian with nothing but Python and make, as root and as an ordinary user.

A step that installs something cannot hide there behind what a machine happens to have. Package indexes are
reached as this machine reaches them: its configuration of pip, Go and name resolution is passed on.
Compiling Kubernetes again would take ten minutes and show nothing new, so the large programs that are in
the cache are lent; the small one, pki, is built, and with it Go is installed.
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

from devcluster.base_images import Base, bootstrap
from devcluster.build import Progress
from devcluster.cache import cache_directory
from devcluster.programs import API_SERVER_PROGRAMS, DevclusterError, binary
from devcluster.requirements import ISOLATED, require_bootstrap
from devcluster.run_step import SCRIPT, borrowed_paths, passed_on

ROOT = Path(__file__).parent.parent
BASE = Base("bookworm", ("python3", "python3-venv", "make", "ca-certificates"))
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GO_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE")
CHECK = ".venv/bin/python -m devcluster check"
TIME_LIMIT_SECONDS = 1200
LENT = tuple(name for name in API_SERVER_PROGRAMS if name != "pki")


@dataclass(frozen=True)
class Visitor:
    """Somebody who has just cloned the repository, and what they type."""

    name: str
    uid: int
    commands: tuple[str, ...]

    @property
    def home(self) -> str:
        """Their home directory."""
        return "/root" if self.uid == 0 else f"/home/{self.name}"

    @property
    def checkout(self) -> str:
        """Where they cloned it to."""
        return f"{self.home}/paddlejob"


TESTS = "-n 2 -q tests/apiserver/test_control_plane.py tests/behaviour tests/local/test_cli.py tests/deploy"
SMOKE = f"make venv && PYTHONHASHSEED=0 .venv/bin/python -m pytest {TESTS} -m 'not tools'"
"""A part of `make test` that meets every program it needs; all of it would take another five minutes."""
VISITORS = (
    Visitor("root", 0, ("make demo", SMOKE, CHECK)),
    # Only root can run a node, which `check` has to say.
    Visitor("user", 1000, ("make demo", "make demo-resnet", SMOKE, f"{CHECK}; test $? = 1")),
)


def visit(names: list[str]) -> int:
    """Let the named visitors, or all, type their commands; give the exit code.

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
        chosen = [visitor for visitor in VISITORS if not names or visitor.name in names]
        outcomes = [_outcome(visitor, base, Path(scratch), progress) for visitor in chosen]
    return 0 if all(outcomes) else 1


def _outcome(visitor: Visitor, base: Path, scratch: Path, progress: Progress) -> bool:
    tree = scratch / visitor.name
    _furnish(visitor, tree)
    for command in visitor.commands:
        progress.say(f"fresh: {visitor.name} types `{command}`")
        started = time.monotonic()
        code = _type(visitor, command, base, tree, scratch)
        progress.say(f"fresh: `{command}` ended with {code} after {time.monotonic() - started:.0f} s")
        if code != 0:
            return False
    return True


def _furnish(visitor: Visitor, tree: Path) -> None:
    """Give a visitor a home with a clean checkout and the programs that are lent."""
    _copy_checkout(tree / visitor.checkout.lstrip("/"))
    lent = tree / visitor.home.lstrip("/") / ".cache" / "paddlejob" / "bin"
    lent.mkdir(parents=True)
    for name in LENT:
        program = binary(name).path
        if program.exists():
            shutil.copy2(program, lent)
    (tree / "tmp").mkdir(mode=0o1777)
    (tree / "tmp").chmod(0o1777)
    home = tree / visitor.home.lstrip("/")
    for path in (home, *home.rglob("*")):
        os.chown(path, visitor.uid, visitor.uid, follow_symlinks=False)


def _copy_checkout(target: Path) -> None:
    """Copy what a clone would have, with changes that are not committed yet."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(listing, capture_output=True, text=True, check=True)
    for name in filter(None, answer.stdout.split("\0")):
        source, place = ROOT / name, target / name
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)


def _type(visitor: Visitor, command: str, base: Path, tree: Path, scratch: Path) -> int:
    """Run a command in the system, with its output where ours is, and give its exit code."""
    with tempfile.TemporaryDirectory(dir=scratch) as step:
        for name in ("root", "work"):
            Path(step, name).mkdir()
        order = Path(step, "order.json")
        order.write_text(json.dumps(_order(visitor, command, base, tree, Path(step))))
        script = [*ISOLATED, sys.executable, "-I", "-S", str(SCRIPT), str(order)]
        try:
            return subprocess.run(script, check=False, timeout=TIME_LIMIT_SECONDS).returncode
        except subprocess.TimeoutExpired:
            raise DevclusterError(f"`{command}` took more than {TIME_LIMIT_SECONDS} s.") from None


def _order(visitor: Visitor, command: str, base: Path, tree: Path, step: Path) -> dict[str, object]:
    own = {"HOME": visitor.home, "USER": visitor.name, "PATH": PATH, "LANG": "C.UTF-8"}
    return {
        "root": str(step / "root"),
        "work": str(step / "work"),
        "upper": str(tree),
        "layers": [str(base)],
        "binds": [(path, path) for path in ("/sys", *borrowed_paths())],
        "directory": visitor.checkout,
        "uid": visitor.uid,
        "gid": visitor.uid,
        "command": ["bash", "-c", command],
        "environment": {**passed_on(), **_go_settings(), **own},
    }


def _go_settings() -> dict[str, str]:
    """Give how this machine's Go reaches modules; one without Go has nothing to say about it."""
    if shutil.which("go") is None:
        return {}
    answer = subprocess.run(["go", "env", "-json", *GO_VARIABLES], capture_output=True, text=True, check=True)
    settings: dict[str, str] = json.loads(answer.stdout)
    return {name: value for name, value in settings.items() if value}
