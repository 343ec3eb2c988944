"""Makes, or finds, the virtualenv with PaddlePaddle that the examples run in.  Standard library only.

    python3 scripts/paddle_env.py 2.6.2      prints the path of its interpreter; progress goes to stderr

The virtualenvs live in ${PADDLEJOB_CACHE:-${XDG_CACHE_HOME:-~/.cache}/paddlejob}/paddle, one for each
Paddle version, Python version and content of examples/constraints-paddle-<version>.txt.  The first call
takes about a minute and 600 to 900 MB (1.5 GB with the kits); every later one only prints.  Two calls at
once wait for each other.

Where a version has no wheel, 3.0.0 takes its place, which has both the parameter server and collective
training.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SUBSTITUTE = "3.0.0"
WHEELS = {  # version -> newest Python (3.x) and machines with a wheel; 3.11 is the oldest Python here anyway
    "2.6.2": (12, ("x86_64", "aarch64")),
    "3.0.0": (13, ("x86_64", "aarch64")),
    "3.3.1": (13, ("x86_64",)),
    "3.3.1-etcd": (13, ("x86_64",)),  # with what Paddle's own elastic launcher needs
    "3.3.1-llm": (13, ("x86_64",)),  # with PaddleFormers and ERNIEKit
}
READY = ".ready"


class PaddleEnvError(Exception):
    """One sentence for the person who ran the script."""


def cache_directory() -> Path:
    """Where everything is kept that can be made again."""
    if chosen := os.environ.get("PADDLEJOB_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "paddlejob"


def choose_version(wanted: str, python: tuple[int, int], machine: str) -> str:
    """The version to install: the one wanted, or the substitute where that has no wheel."""
    if wanted not in WHEELS:
        raise PaddleEnvError(f"version {wanted!r} is not one of {', '.join(WHEELS)}")
    for version in (wanted, SUBSTITUTE):
        newest, machines = WHEELS[version]
        if python <= (3, newest) and machine in machines:
            return version
    raise PaddleEnvError(
        f"PaddlePaddle has no wheel for Python {python[0]}.{python[1]} on {machine}; "
        "run this script with Python 3.11, 3.12 or 3.13 on x86_64 or aarch64"
    )


def directory_for(version: str, python: tuple[int, int], machine: str) -> Path:
    """Named after all that decides its content, so that a change makes a new one."""
    facts = f"{python} {machine} {constraints(version).read_text()}"
    key = hashlib.sha256(facts.encode()).hexdigest()[:12]
    return cache_directory() / "paddle" / f"{version}-{key}"


def constraints(version: str) -> Path:
    return EXAMPLES / f"constraints-paddle-{version}.txt"


def packages(version: str) -> list[str]:
    """The arguments of `pip install`."""
    pins = str(constraints(version))
    if version.endswith("-llm"):
        # ERNIEKit requires an older PaddleFormers, and both require packages that training does not import.
        return ["--no-deps", "--requirement", pins]
    client = ["etcd3"] if version.endswith("-etcd") else []
    return ["--constraint", pins, "paddlepaddle", "setuptools", *client]


def interpreter(directory: Path) -> Path:
    return directory / "bin" / "python"


def is_ready(directory: Path) -> bool:
    # The interpreter is a link: it also has to lead somewhere, after an update of the system's Python.
    return (directory / READY).exists() and interpreter(directory).exists()


def ensure(wanted: str) -> Path:
    """The interpreter of a virtualenv with Paddle, which is made when it is not there.

    Raises: PaddleEnvError.
    """
    python, machine = sys.version_info[:2], platform.machine()
    version = choose_version(wanted, python, machine)
    if version != wanted:
        where = f"Python {python[0]}.{python[1]} on {machine}"
        say(f"paddlepaddle {wanted} has no wheel for {where}, using {version}")
    directory = directory_for(version, python, machine)
    if not is_ready(directory):
        with locked(directory):
            if not is_ready(directory):  # somebody else may have made it while we waited
                make(directory, version)
    return interpreter(directory)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock beside `path`; it goes with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(directory: Path, version: str) -> None:
    """Installs in place, since a virtualenv cannot be moved; the marker is what makes it count."""
    say(f"installing paddlepaddle {version} into {directory}, once (600 MB to 1.5 GB)")
    shutil.rmtree(directory, ignore_errors=True)
    run(
        [sys.executable, "-m", "venv", str(directory)],
        "the virtualenv could not be made; is python3-venv installed?",
    )
    install = [str(interpreter(directory)), "-m", "pip", "install", "--disable-pip-version-check"]
    # Somebody who watches wants to see that it goes on; a log does not want the bars.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    run(
        [*install, *quiet, *packages(version)],
        f"pip could not install paddlepaddle {version}; check that the package index is reachable",
    )
    lend_openmp(directory)
    run(
        [str(interpreter(directory)), "-W", "ignore", "-c", "import paddle.distributed.fleet"],
        f"paddlepaddle {version} is installed but cannot be imported; libgomp1 may be missing",
    )
    (directory / READY).touch()


def lend_openmp(directory: Path) -> None:
    """Paddle needs libgomp.so.1, which a bare Debian lacks; the libiomp5 in its wheel has all its symbols."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        for library in directory.glob("lib/python3.*/site-packages/paddle/libs/libiomp5.so"):
            library.with_name("libgomp.so.1").symlink_to(library.name)
            # Not all of them look in their own directory; libdnnl does, and a name is looked up only once.
            preload = f"import ctypes; ctypes.CDLL({str(library.with_name('libdnnl.so.3'))!r})\n"
            (library.parents[2] / "openmp.pth").write_text(preload)


def run(command: list[str], trouble: str) -> None:
    # What the program prints is for the person, so that stdout stays what a caller can read.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise PaddleEnvError(trouble)


def say(text: str) -> None:
    print(f"paddle_env: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes, or finds, the virtualenv with PaddlePaddle.")
    parser.add_argument("version", choices=sorted(WHEELS))
    try:
        print(ensure(parser.parse_args().version))
    except (PaddleEnvError, OSError) as error:
        sys.exit(f"paddle_env: {error}")


if __name__ == "__main__":
    main()
