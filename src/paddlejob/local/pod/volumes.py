"""Volumes of a pod, as directories on this machine."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob import kubelet
from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.validation.errors import describe, is_dns_label
from paddlejob.kubelet import Sources, expand
from paddlejob.local.errors import InputError
from paddlejob.local.sandbox.spec import Bind
from paddlejob.local.store.run_directory import MEMORY, write_atomically

KINDS = (
    "emptyDir",
    "hostPath",
    "configMap",
    "secret",
    "persistentVolumeClaim",
    "downwardAPI",
    "projected",
    "ephemeral",
)


class Claims(msgspec.Struct, frozen=True):
    """Directories used for persistent volume claims."""

    chosen: Mapping[str, Path]
    default: Path
    """Parent of the directories of other claims, which are kept between runs."""

    def directory(self, claim: str) -> Path:
        return self.chosen.get(claim) or self.default / claim


def claims_of(options: tuple[str, ...], default: Path) -> Claims:
    """Parse `--volume CLAIM=DIR` options. Raises InputError."""
    chosen = {}
    for option in options:
        claim, separator, directory = option.partition("=")
        if not separator or not claim or not directory:
            raise InputError(f"--volume {option}: write CLAIM=DIR")
        path = Path(directory).resolve()
        if not path.is_dir():
            raise InputError(f"--volume {option}: {path} is not a directory; create it first")
        chosen[claim] = path
    return Claims(chosen, default)


def volume_errors(path: str, pod_spec: JsonObject) -> Iterator[str]:
    """Yield the errors in a pod's volumes and volume mounts."""
    volumes = pod_spec.get("volumes") or ()
    for index, volume in enumerate(volumes):
        yield from _source_errors(f"{path}.volumes[{index}]", volume)
    known = {volume.get("name") for volume in volumes}
    for here, mount in _volume_mounts(path, pod_spec):
        if mount.get("name") not in known:
            yield f"{here}.name is {mount.get('name')}, but the pod has no such volume; add it"
        if not str(mount.get("mountPath") or "").startswith("/"):
            yield f"{here}.mountPath is {mount.get('mountPath')}; write an absolute path"


def mount_errors(path: str, pod_spec: JsonObject, claims: Claims) -> Iterator[str]:
    """Yield the mounts that need a mount namespace, because their source is not at the mount path already."""
    volumes = {volume.get("name"): volume for volume in pod_spec.get("volumes") or ()}
    for here, mount in _volume_mounts(path, pod_spec):
        volume, target = volumes.get(mount.get("name")) or {}, Path(str(mount.get("mountPath")))
        if target == MEMORY and (volume.get("emptyDir") or {}).get("medium") == "Memory":
            continue
        source = _fixed_directory(volume, claims)
        if source is None:
            yield f"{here} cannot be mounted at {target}"
        elif not (target.exists() and target.resolve() == source.resolve()):
            yield f"{here}: {source} cannot be mounted at {target}; `ln -s {source} {target}` works too"


def _fixed_directory(volume: JsonObject, claims: Claims) -> Path | None:
    """Return the directory of a volume that exists independently of a pod."""
    if "hostPath" in volume:
        return Path(str(volume["hostPath"].get("path")))
    if "persistentVolumeClaim" in volume:
        return claims.directory(str(volume["persistentVolumeClaim"].get("claimName")))
    return None


def _source_errors(path: str, volume: JsonObject) -> Iterator[str]:
    yield from _name_errors(path, volume)
    if "nfs" in volume:
        server = volume["nfs"].get("server")
        yield (
            f"{path} is nfs from {server}, which only an administrator can mount; "
            "mount it yourself and use a hostPath, or a persistentVolumeClaim with --volume CLAIM=DIR"
        )
    elif not _is_empty_dir(volume) and not any(kind in volume for kind in KINDS):
        given = ", ".join(key for key in volume if key != "name")
        yield f"{path} is {given}, which is not supported locally; use one of {', '.join(KINDS)}"
    elif "hostPath" in volume:
        host_path = volume["hostPath"]
        if not str(host_path.get("type") or "").endswith("OrCreate") and not Path(host_path["path"]).exists():
            yield f"{path}.hostPath.path is {host_path['path']}, which does not exist; create it first"


def _is_empty_dir(volume: JsonObject) -> bool:
    """Return whether a volume is an emptyDir, which is the default of the API server."""
    return "emptyDir" in volume or volume.keys() <= {"name"}


def _name_errors(path: str, volume: JsonObject) -> Iterator[str]:
    """Yield names and paths that would leave the volume's directory; the API server rejects them too."""
    if "name" in volume and not is_dns_label(str(volume["name"])):
        yield f"{path}.name is {describe(volume['name'])}; use lower-case letters, digits and '-'"
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if claim is not None and not all(map(is_dns_label, str(claim).split("."))):
        yield (
            f"{path}.persistentVolumeClaim.claimName is {describe(claim)}; "
            "use lower-case letters, digits, '-' and '.'"
        )
    for field in kubelet.MAKERS:
        for index, item in enumerate((volume.get(field) or {}).get("items") or ()):
            if not kubelet.stays_inside(str(item.get("path") or "")):
                here = f"{path}.{field}.items[{index}].path"
                yield f"{here} is {describe(item.get('path'))}; write a path inside the volume, without '..'"
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        yield from _name_errors(f"{path}.projected.sources[{index}]", source)


def containers_of(path: str, pod_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the init containers and containers of a pod, each with its field path."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(pod_spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}]", container


def _volume_mounts(path: str, pod_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for here, container in containers_of(path, pod_spec):
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            yield f"{here}.volumeMounts[{index}]", mount


class PodVolumes:
    """The volumes of one pod. Those without a fixed directory are deleted with it."""

    def __init__(self, pod_spec: JsonObject, directory: Path, memory: Path, claims: Claims) -> None:
        self._volumes = {str(volume["name"]): volume for volume in pod_spec.get("volumes") or ()}
        self._directory = directory
        self._memory = memory
        self._claims = claims

    def mounts(self, container: JsonObject, sources: Sources, values: Mapping[str, str]) -> list[Bind]:
        """Return the volume mounts of a container.

        The launcher's logs are in the run's directory, which needs no mount and outlives the pod. Raises
        InputError, and ConfigError if a volume's ConfigMap or Secret does not exist yet.
        """
        logs = (names.LAUNCHER_LOGS, names.LAUNCHER_LOG_DIR)
        mounts = container.get("volumeMounts") or ()
        return [
            self._mount(each, sources, values) for each in mounts if (each["name"], each["mountPath"]) != logs
        ]

    def shared_memory(self) -> Bind:
        """Return a private /dev/shm: on a cluster pods do not share one."""
        directory = _ensure(self._memory / "shm")
        return Bind(kind="bind", source=str(directory), target=str(MEMORY), read_only=False)

    def remove(self) -> None:
        """Delete the directories of the pod's own volumes."""
        for directory in (self._directory, self._memory):
            shutil.rmtree(directory, ignore_errors=True)

    def _mount(self, mount: JsonObject, sources: Sources, values: Mapping[str, str]) -> Bind:
        volume = self._volumes[str(mount["name"])]
        source, read_only = self._source(volume, sources)
        inside = mount.get("subPath") or expand(mount.get("subPathExpr") or "", values)
        if inside:
            source = _inside(source, inside)
        return Bind(
            kind="bind",
            source=str(source.resolve()),
            target=posixpath.normpath(mount["mountPath"]),
            read_only=read_only or bool(mount.get("readOnly")),
        )

    def _source(self, volume: JsonObject, sources: Sources) -> tuple[Path, bool]:
        name = str(volume["name"])
        if "hostPath" in volume:
            return _host_path(volume["hostPath"]), False
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]
            directory = self._claims.directory(str(claim.get("claimName")))
            _make_private(directory)
            return directory, bool(claim.get("readOnly"))
        if _is_empty_dir(volume) or "ephemeral" in volume:
            in_memory = (volume.get("emptyDir") or {}).get("medium") == "Memory"
            return _ensure((self._memory if in_memory else self._directory) / name), False
        directory = _ensure(self._directory / name)
        for path, content, mode in kubelet.files_of(volume, sources):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, content, mode)
        return directory, True


def _host_path(reference: JsonObject) -> Path:
    path = Path(str(reference.get("path")))
    if not path.exists() and reference.get("type") == "DirectoryOrCreate":
        path.mkdir(parents=True)
    elif not path.exists() and reference.get("type") == "FileOrCreate":
        path.touch()
    return path


def _inside(source: Path, inside: str) -> Path:
    """Return a subdirectory of a volume. Raises InputError if it, or a link in it, leaves the volume."""
    path = (source / inside).resolve()
    if not kubelet.stays_inside(inside) or not path.is_relative_to(source.resolve()):
        raise InputError(f"subPath is {inside}, which leaves the volume; write a path inside the volume")
    if not path.exists():
        path.mkdir(parents=True)
    return path


def _make_private(directory: Path) -> None:
    """Create a directory and its missing parents, accessible only to this user."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _ensure(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
