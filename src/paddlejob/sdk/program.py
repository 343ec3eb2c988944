"""The program of a job and its files, which its pods mount from a ConfigMap."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.sdk.errors import JobError
from paddlejob.sdk.source import script_of

WORKSPACE = "/workspace"
"""Working directory of the program, on a cluster and on a laptop."""
MAX_BYTES = 1 << 20
"""Maximum size of a ConfigMap."""
VOLUME = "paddlejob-files"
_INTERPRETERS = {".py": "python", ".sh": "bash"}
_NOT_IN_KEYS = re.compile(r"[^-._a-zA-Z0-9]")

Function = Callable[..., object]
Arguments = Sequence[object] | Mapping[str, object]


class Program(msgspec.Struct, frozen=True):
    """A command and the files in its working directory."""

    title: str
    """Default name of the job."""
    command: tuple[str, ...] = ()
    files: Mapping[str, bytes] = {}
    """Content by path."""

    def config_map(self, name: str) -> JsonObject:
        """Return the ConfigMap with the files."""
        data: dict[str, str] = {}
        binary: dict[str, str] = {}
        for key, path in self._keys().items():
            try:
                data[key] = self.files[path].decode()
            except UnicodeDecodeError:
                binary[key] = base64.b64encode(self.files[path]).decode()
        held = {"data": data, "binaryData": binary}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            **{field: value for field, value in held.items() if value},
        }

    def volume(self, config_map: str) -> JsonObject:
        """Return the volume that maps the keys of the ConfigMap to paths."""
        items = [{"key": key, "path": path} for key, path in self._keys().items()]
        return {"name": VOLUME, "configMap": {"name": config_map, "items": items}}

    def mounts(self) -> list[JsonObject]:
        """Return one mount per file and directory, so that the directory around them stays writable."""
        tops = sorted({PurePosixPath(path).parts[0] for path in self.files})
        return [{"name": VOLUME, "mountPath": f"{WORKSPACE}/{top}", "subPath": top} for top in tops]

    def _keys(self) -> dict[str, str]:
        """Return the paths by ConfigMap key. Keys have no slashes."""
        keys: dict[str, str] = {}
        for path in sorted(self.files):
            key = plain = _NOT_IN_KEYS.sub("_", path.replace("/", "."))
            count = 2
            while key in keys:
                key, count = f"{plain}.{count}", count + 1
            keys[key] = path
        return keys


def program_of(
    given: str | Path | Function | None, args: Arguments, command: Sequence[str], files: Iterable[str | Path]
) -> Program:
    """Return the command and the files of a script, a function or a plain command. Raises JobError."""
    shipped = dict(_read_all(files))
    if given is None:
        if not command:
            raise JobError("pass a script, a function, or command= for a program in the image")
        found = Program("train", (*command, *_words(args)), shipped)
    elif isinstance(given, str | Path):
        found = _script(Path(given), args, command, shipped)
    else:
        found = _function(given, args, command, shipped)
    size = sum(len(content) for content in found.files.values())
    if size > MAX_BYTES:
        raise JobError(
            f"the program and its files have {size / MAX_BYTES:.1f} MiB; the limit is 1 MiB. Put data on a "
            "volume or into the image"
        )
    return found


def _script(path: Path, args: Arguments, command: Sequence[str], shipped: Mapping[str, bytes]) -> Program:
    if path.is_dir():
        raise JobError(f"{path} is a directory; pass the script, and ship the directory with files=[...]")
    if not path.exists():
        raise JobError(
            f"{path} does not exist; to run a script in the image, pass command=['python', {str(path)!r}]"
        )
    place = _place(path)
    interpreter = _INTERPRETERS.get(path.suffix)
    if not command and interpreter is None:
        raise JobError(f"{path} is neither .py nor .sh; pass the command to run it with command=[...]")
    words = tuple(command) or (str(interpreter), place)
    return Program(path.stem, (*words, *_words(args)), {**shipped, place: path.read_bytes()})


def _function(
    function: Function, args: Arguments, command: Sequence[str], shipped: Mapping[str, bytes]
) -> Program:
    if not isinstance(args, Mapping) and args:
        raise JobError("functions take keyword arguments; pass args={'name': value}")
    modules = {PurePosixPath(path).parts[0].removesuffix(".py") for path in shipped}
    text = script_of(function, args if isinstance(args, Mapping) else {}, modules)
    title = getattr(function, "__name__", "train")
    place = f"{title}.py"
    if place in shipped:
        raise JobError(
            f"{place} is in files=, and {title} is shipped under the same name; rename one of them"
        )
    return Program(title, tuple(command) or ("python", place), {**shipped, place: text.encode()})


def _words(args: Arguments) -> list[str]:
    if isinstance(args, Mapping):
        return [f"--{name}={value}" for name, value in args.items()]
    if isinstance(args, str):
        raise JobError(f"args={args!r} is one string; pass a list of arguments")
    return [str(each) for each in args]


def _read_all(given: Iterable[str | Path]) -> Iterator[tuple[str, bytes]]:
    if isinstance(given, str | Path):
        raise JobError(f"files={str(given)!r} is one path; pass a list of paths")
    for each in map(Path, given):
        if not each.exists():
            raise JobError(f"files=: {each} does not exist")
        if each.is_file():
            yield _place(each), each.read_bytes()
            continue
        for inner in sorted(each.rglob("*")):
            if inner.is_file() and not _is_hidden(inner.relative_to(each)):
                _check_inside(inner, each)
                yield f"{_place(each)}/{inner.relative_to(each)}", inner.read_bytes()


def _check_inside(file: Path, directory: Path) -> None:
    """Reject a symbolic link out of a directory: it may lead to a private key."""
    if not file.resolve().is_relative_to(directory.resolve()):
        raise JobError(f"files=: {file} is a link out of {directory}; copy the file, or remove the link")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _place(path: Path) -> str:
    """Return the path in the pod: relative to the current directory, or only the file name."""
    absolute = path.absolute().resolve()
    here = Path.cwd().resolve()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else absolute.name
