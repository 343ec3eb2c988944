"""The table of programs devcluster can build, and the Go modules that pin their versions."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from devcluster.cache import cache_directory
from devcluster.errors import DevclusterError

GO_DIRECTORY = Path(__file__).parent.parent / "go"

UPSTREAM = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v4",
    "coredns": "github.com/coredns/coredns",
}
"""The upstream module of each family, which pins its version; other families are our own code."""


@dataclass(frozen=True)
class Program:
    """One program: the module family that builds it, its package, and the time of its own part of a build."""

    name: str
    family: str
    package: str
    build_seconds: int


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", 90),
        Program("pki", "pki", "paddlejob.devcluster/pki", 20),
        Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 240),
        Program("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", 95),
        Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 10),
        Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 30),
        Program("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", 30),
        Program("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy", 20),
        Program("pause", "pause", "paddlejob.devcluster/pause", 5),
        Program("gpus", "gpus", "paddlejob.devcluster/gpus", 80),
        Program("coredns", "coredns", "paddlejob.devcluster/coredns", 140),
        Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", 150),
        Program("apiextensions-apiserver", "apiextensions", "paddlejob.devcluster/apiextensions", 120),
    )
}

SHARED_BUILD_SECONDS = {"kubernetes": 180}
"""Time to compile the shared libraries of a family, with its first program."""

API_SERVER_PROGRAMS = ("etcd", "pki", "kube-apiserver", "kube-controller-manager")
"""Default components of a cluster."""

CONTROL_PLANE_PROGRAMS = (*API_SERVER_PROGRAMS, "kube-scheduler", "kubectl")
"""Programs that `build` builds by default."""

NODE_PROGRAMS = ("kubelet", "kube-proxy", "coredns", "pause")
"""Additional programs of a real node."""


@dataclass(frozen=True)
class Module:
    """A directory with go.mod and go.sum, named after a family, perhaps with a suffix (kubernetes-1.36)."""

    directory: Path

    @property
    def family(self) -> str:
        """The family of programs this module builds."""
        return self.directory.name.partition("-")[0]

    @property
    def version(self) -> str:
        """The upstream version that go.mod requires, `local` for a module that holds its own source."""
        upstream = UPSTREAM.get(self.family)
        if upstream is None:
            return "local"
        found = re.search(rf"^(?:require)?\s+{re.escape(upstream)} (\S+)$", self._go_mod(), re.MULTILINE)
        if found is None:
            raise DevclusterError(f"{self.directory / 'go.mod'} does not require {upstream}.")
        return found[1]

    @property
    def go_version(self) -> tuple[int, ...]:
        """The oldest Go that may build it."""
        found = re.search(r"^go (\d+(?:\.\d+)*)$", self._go_mod(), re.MULTILINE)
        if found is None:
            raise DevclusterError(f"{self.directory / 'go.mod'} has no go line.")
        return tuple(int(part) for part in found[1].split("."))

    def own_sources(self) -> list[Path]:
        """Give the Go files that are ours; tools.go only names packages for go.sum."""
        return sorted(path for path in self.directory.glob("*.go") if path.name != "tools.go")

    def sources(self) -> list[Path]:
        """Return the input files of a build."""
        pinned = (path for name in ("go.mod", "go.sum") for path in self.directory.glob(name))
        return sorted([*pinned, *self.own_sources()])

    def _go_mod(self) -> str:
        path = self.directory / "go.mod"
        try:
            return path.read_text()
        except FileNotFoundError:
            raise DevclusterError(
                f"There is no {path}; make it with `python -m devcluster pin {self.directory.name} VERSION`."
            ) from None


@dataclass(frozen=True)
class Binary:
    """One program at the version of one module."""

    program: Program
    module: Module

    @property
    def version(self) -> str:
        """The version it reports."""
        return self.module.version

    @property
    def flags(self) -> list[str]:
        """The flags of `go build` that shape the result."""
        return ["-trimpath", "-buildvcs=false", f"-ldflags={' '.join(_linker_flags(self.module))}"]

    @property
    def key(self) -> str:
        """A short hash of everything that decides the result: module files, flags and platform."""
        recipe = (self.program.package, self.flags, sys.platform, platform.machine())
        digest = hashlib.sha256(repr(recipe).encode())
        for path in self.module.sources():
            digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    @property
    def path(self) -> Path:
        """Path of the built program."""
        return cache_directory() / "bin" / f"{self.program.name}-{self.version}-{self.key}"

    @property
    def expected_build_seconds(self) -> int:
        """Estimated build time on two cores, given the contents of the cache."""
        shares = any(self.path.parent.glob(f"*-{self.version}-*"))
        return self.program.build_seconds + (0 if shares else SHARED_BUILD_SECONDS.get(self.module.family, 0))


def _linker_flags(module: Module) -> list[str]:
    flags = ["-s", "-w"]
    if module.family == "kubernetes":
        # Without these the server calls itself v0.0.0 and clients complain about its age.
        major, minor = module.version.removeprefix("v").split(".")[:2]
        values = {"gitVersion": module.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags += [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    return flags


def module(name: str) -> Module:
    """Find a module by its directory's name under devcluster/go, or by a path."""
    return Module(Path(name) if "/" in name else GO_DIRECTORY / name)


def binary(name: str, *, kubernetes: str = "kubernetes") -> Binary:
    """Describe a program; `kubernetes` names the module for the programs of that family.

    Raises: DevclusterError for a name that is not in the table.
    """
    program = PROGRAMS.get(name)
    if program is None:
        raise DevclusterError(f"There is no program {name!r}; the choices are {', '.join(PROGRAMS)}.")
    return Binary(program, module(kubernetes if program.family == "kubernetes" else program.family))
