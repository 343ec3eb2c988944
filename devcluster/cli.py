"""The command line: `python -m devcluster build | up | down | status | kubectl | image | ...`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import fresh
from devcluster.build.compile import ensure
from devcluster.build.pinning import drift, pin
from devcluster.build.programs import CONTROL_PLANE_PROGRAMS, module
from devcluster.cache import cache_directory
from devcluster.control_plane.background import Background
from devcluster.errors import DevclusterError
from devcluster.images.build import build_image
from devcluster.node.runtime import NodeRuntime
from devcluster.requirements import missing_packages, obstacle_to_a_node
from devcluster.settings import DEFAULT_COMPONENTS, ClusterSettings

MEBIBYTE = 2**20


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    options = _parser().parse_args(argv)
    try:
        code: int = options.run(options)
    except DevclusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m devcluster", description="A real Kubernetes on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    version = argparse.ArgumentParser(add_help=False)
    version.add_argument(
        "--kubernetes", default="kubernetes", metavar="MODULE", help="Go module that pins the version"
    )
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="dev", help="which cluster (default: dev)")

    build = commands.add_parser("build", parents=[version], help="build what is missing and print the paths")
    build.add_argument(
        "programs", nargs="*", metavar="NAME", help=f"default: {' '.join(CONTROL_PLANE_PROGRAMS)}"
    )
    build.set_defaults(run=_build)
    up = commands.add_parser("up", parents=[named, version], help="start a cluster in the background")
    up.add_argument("--node", action="store_true", help="with a real node that runs containers (needs root)")
    up.add_argument("--components", type=_names, metavar="A,B", help=",".join(DEFAULT_COMPONENTS))
    up.add_argument("--controllers", type=_names, metavar="A,B", help="'*' for all")
    up.add_argument("--feature-gates", type=_switches, default={}, metavar="A=true,B=false")
    up.add_argument("--runtime-config", type=_switches, default={}, metavar="GROUP/VERSION=true")
    up.set_defaults(run=_up)
    for name, action, text in (
        ("down", _down, "end a cluster and remove its data"),
        ("status", _status, "say what runs; exit code 3 when nothing does"),
        ("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig"),
    ):
        commands.add_parser(name, parents=[named], help=text).set_defaults(run=action)
    kubectl = commands.add_parser(
        "kubectl", parents=[named], help="run the cluster's own kubectl: kubectl -- get pods"
    )
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl.set_defaults(run=_kubectl)
    check = commands.add_parser("check", help="say whether a real node can run here; exit code 1 when not")
    check.set_defaults(run=_check)
    fresh_parser = commands.add_parser(
        "fresh", help="run what the README shows in a bare Debian, as root and as a user"
    )
    fresh_parser.add_argument(
        "accounts",
        nargs="*",
        metavar="NAME",
        help=f"default: {' '.join(each.name for each in fresh.ACCOUNTS)}",
    )
    fresh_parser.set_defaults(run=lambda options: fresh.run(options.accounts))
    image = commands.add_parser("image", parents=[named], help="build an image and give it to the node")
    image.add_argument("image", metavar="IMAGE", help="its name, as manifests spell it")
    image.add_argument("context", type=Path, help="the directory that COPY takes from")
    image.add_argument("--file", type=Path, help="default: CONTEXT/Dockerfile")
    image.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    image.set_defaults(run=_image)
    pinning = commands.add_parser("pin", help="write go.mod, go.sum and tools.go of a module for a version")
    pinning.add_argument("module", help="kubernetes, etcd, or kubernetes-SUFFIX for a second version")
    pinning.add_argument(
        "version", nargs="?", help="like v1.35.4; without it, only check that the files are what pin writes"
    )
    pinning.set_defaults(run=_pin)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _switches(text: str) -> dict[str, bool]:
    switches = {}
    for item in _names(text):
        name, equals, value = item.partition("=")
        if not equals or value not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{item!r} must look like NAME=true or NAME=false")
        switches[name] = value == "true"
    return switches


def _background(name: str) -> Background:
    return Background(cache_directory() / "clusters" / name)


def _build(options: argparse.Namespace) -> int:
    for path in ensure(options.programs or CONTROL_PLANE_PROGRAMS, kubernetes=options.kubernetes).values():
        print(path)
    return 0


def _up(options: argparse.Namespace) -> int:
    base = ClusterSettings.with_node() if options.node else ClusterSettings()
    settings = ClusterSettings(
        components=options.components or base.components,
        controllers=options.controllers or base.controllers,
        feature_gates=options.feature_gates,
        runtime_config=options.runtime_config,
        kubernetes=options.kubernetes,
    )
    cluster = _background(options.name).up(settings)
    print(f"Kubernetes {cluster.version} is running at {cluster.url}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(options: argparse.Namespace) -> int:
    ended = _background(options.name).down()
    print(f"cluster {options.name} is down" if ended else f"there is no cluster {options.name}")
    return 0


def _status(options: argparse.Namespace) -> int:
    background = _background(options.name)
    records = background.records()
    if not records:
        print(f"cluster {options.name} is not running")
        return 3
    cluster = background.connect()
    print(
        f"cluster {options.name}: Kubernetes {cluster.version} at {cluster.url}, files in {cluster.directory}"
    )
    for record in records:
        print(f"  {record.name:<24} pid {record.pid:<8} {record.resident_bytes() / MEBIBYTE:>5.0f} MiB")
    return 0


def _kubeconfig(options: argparse.Namespace) -> int:
    print(_background(options.name).connect().kubeconfig)
    return 0


def _kubectl(options: argparse.Namespace) -> int:
    cluster = _background(options.name).connect()
    program = ensure(["kubectl"], kubernetes=cluster.access.kubernetes)["kubectl"]
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    os.execv(program, [str(program), f"--kubeconfig={cluster.kubeconfig}", *arguments])


def _check(_: argparse.Namespace) -> int:
    obstacle = obstacle_to_a_node()
    if obstacle is not None:
        print(obstacle)
        return 1
    missing = missing_packages()
    first = f" once apt-get has installed {', '.join(missing)}" if missing else ""
    print(f"A real node can run here{first}.")
    return 0


def _image(options: argparse.Namespace) -> int:
    node = NodeRuntime(_background(options.name).connect().directory)
    dockerfile = options.file or options.context / "Dockerfile"
    arguments = dict(each.split("=", 1) for each in options.build_arg)
    node.import_images([build_image(options.image, dockerfile, options.context, arguments=arguments)])
    return 0


def _pin(options: argparse.Namespace) -> int:
    chosen = module(options.module)
    if options.version is not None:
        pin(chosen, options.version)
        return 0
    changed = drift(chosen)
    for name in changed:
        print(f"{Path(chosen.directory.name) / name} differs from what `pin {chosen.directory.name}` writes")
    return 1 if changed else 0
