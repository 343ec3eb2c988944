"""Writes the go.mod, go.sum and tools.go of a module directory for a given upstream version."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from devcluster.build.programs import PROGRAMS, UPSTREAM, Module
from devcluster.build.toolchain import find_go, go_environment
from devcluster.errors import DevclusterError

OLDEST_GO = (1, 25)


def pinned(module: Module, version: str) -> dict[str, str]:
    """Give the text of every pinned file; the same version always gives the same texts.

    Raises: DevclusterError when the version cannot be fetched or resolved.
    """
    upstream = UPSTREAM.get(module.family)
    if upstream is None:
        raise DevclusterError(f"{module.directory.name} holds its own source, there is nothing to pin.")
    go = find_go(OLDEST_GO, print)
    download = json.loads(_go(go, Path("/"), "mod", "download", "-json", f"{upstream}@{version}"))
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        upstream_mod = Path(download["GoMod"]).read_text()
        (directory / "go.mod").write_text(minimal_go_mod(module.family, version, upstream_mod))
        written = _importers(module, directory)
        _go(go, directory, "mod", "tidy")
        return {name: (directory / name).read_text() for name in ("go.mod", "go.sum", *written)}


def _importers(module: Module, directory: Path) -> list[str]:
    """Put Go files into the directory that import all that is needed; name those that pinning writes."""
    own = module.own_sources()
    if own:
        for path in own:
            shutil.copy(path, directory)
        return []
    (directory / "tools.go").write_text(tools_go(module.family))
    return ["tools.go"]


def pin(module: Module, version: str) -> None:
    """Rewrite a module directory for this version."""
    texts = pinned(module, version)
    module.directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (module.directory / name).write_text(text)


def drift(module: Module) -> list[str]:
    """Return the files that differ from the output of `pin` for their version."""
    texts = pinned(module, module.version)
    return [name for name, text in texts.items() if (module.directory / name).read_text() != text]


def minimal_go_mod(family: str, version: str, upstream_mod: str) -> str:
    """Give the go.mod that `go mod tidy` completes: one requirement, and what does not travel with it.

    Kubernetes keeps its libraries in one tree and points at them with replace directives, which Go ignores in
    a dependency; the same libraries are published as v0.MINOR.PATCH.
    """
    settings = re.findall(r"^(?:go|godebug) .*$", upstream_mod, re.MULTILINE)
    lines = [f"module paddlejob.devcluster/{family}", *settings, f"require {UPSTREAM[family]} {version}"]
    staged = re.findall(r"^(?:replace)?\s+(\S+) => \./staging/", upstream_mod, re.MULTILINE)
    if staged:
        library_version = version.replace("v1.", "v0.", 1)
        lines += ["replace (", *(f"\t{name} => {name} {library_version}" for name in staged), ")"]
    return "\n".join(lines) + "\n"


def tools_go(family: str) -> str:
    """Give a file that imports every program of the family, so that go.mod and go.sum cover them all."""
    packages = sorted(program.package for program in PROGRAMS.values() if program.family == family)
    imports = "".join(f'\t_ "{package}"\n' for package in packages)
    return (
        "//go:build tools\n\n"
        f"// Package tools names the {family} programs to build; `python -m devcluster pin` writes it.\n"
        f"package tools\n\nimport (\n{imports})\n"
    )


def _go(go: Path, directory: Path, *arguments: str) -> str:
    result = subprocess.run(
        [go, *arguments], cwd=directory, env=go_environment(), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise DevclusterError(
            f"`go {' '.join(arguments)}` failed:\n{(result.stderr or result.stdout).strip()}"
        )
    return result.stdout
