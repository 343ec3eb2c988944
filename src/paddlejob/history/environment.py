"""Describes the pods of an attempt without revealing values that may be secret. Pure.

A value is kept in clear text only if an allow-list contains its field, or if it is a number, a switch or a
file name. All other values are replaced by a keyed hash, which shows only whether a value changed. Log lines
and commands are free text, in which only credentials with a recognizable form are found.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.pod_set import replica_of
from paddlejob.history.record import Change

REDACTED = "(redacted)"

_NAMES = (
    r"(?:api[_-]?|access[_-]?|private[_-]?)?key|auth(?:orization)?|cookie|credentials?|dsn|pass(?:word|wd|phrase)|"
    r"pwd|secret|sig(?:nature)?|token"
)
_VALUE = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[^\s"'&]++)"""
_PATTERNS = (
    # The user name may be a token as well.
    (re.compile(r"(://)[^/@\s]++(?=@)"), rf"\g<1>{REDACTED}"),
    (re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}+", re.IGNORECASE), rf"\g<1>{REDACTED}"),
    (re.compile(rf"""((?:{_NAMES})["']?[ \t]*+[=:][ \t]*+){_VALUE}""", re.IGNORECASE), rf"\g<1>{REDACTED}"),
    # The bounds keep the time linear.
    (
        re.compile(rf"((?<![\w-])--?[\w-]{{0,40}}?(?:{_NAMES})[ \t]{{1,8}}){_VALUE}", re.IGNORECASE),
        rf"\g<1>{REDACTED}",
    ),
    (re.compile(r"\beyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+"), REDACTED),
    (re.compile(r"\b(?:gh[pousr]_|xox[abprs]-|hf_|AKIA|sk-)[\w-]{12,}+"), REDACTED),
)
MAX_VALUES = 256
"""Number of values kept for one attempt, each of at most VALUE_LENGTH characters."""
VALUE_LENGTH = 200
MAX_READ = 4 * MAX_VALUES
"""Number of fields read from one template; a hostile one has a hundred thousand."""
MAX_DEPTH = 16
NAMED_NODES = 64
"""Number of pods for which the node is kept."""

_POD_FIELDS = {
    *("activeDeadlineSeconds", "affinity", "dnsPolicy", "hostIPC", "hostNetwork", "hostPID", "nodeName"),
    *("nodeSelector", "priority", "priorityClassName", "restartPolicy", "runtimeClassName", "schedulerName"),
    *("serviceAccountName", "shareProcessNamespace", "terminationGracePeriodSeconds", "tolerations"),
    "topologySpreadConstraints",
}
_CONTAINER_FIELDS = {
    *("envFrom", "image", "imagePullPolicy", "ports", "resources", "restartPolicy", "securityContext"),
    *("volumeMounts", "workingDir"),
}
_VOLUME_FIELDS = {"configMap", "emptyDir", "hostPath", "nfs", "persistentVolumeClaim", "secret"}
_CLEAR_FIELDS = {
    "containers": _CONTAINER_FIELDS,
    "initContainers": _CONTAINER_FIELDS,
    "volumes": _VOLUME_FIELDS,
}
"""Fields kept in clear text, for each list of a pod spec with named items."""
_REFERENCES = {"configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"}

_SECRET_NAME = re.compile(
    r"auth|cookie|cred|dsn|jwt|key|pass|pwd|secret|sig|token|(?:^|[_-])(?:otp|pat|pin|pw|sas)(?:$|[_-])",
    re.IGNORECASE,
)
"""Names of variables and flags with values that are never kept, not even a number."""
_HARMLESS = re.compile(
    r"[+-]?(?:\d{1,9}(?:\.\d{0,12})?|\.\d{1,12})(?:e[+-]?\d{1,3})?[a-z%]{0,2}|true|false|yes|no|on|off|none|auto|",
    re.IGNORECASE,
)
_FRAMEWORK_VARIABLE = re.compile(r"(?:CUDA|FLAGS|GLOG|NCCL|OMP|PADDLE|PADDLEJOB)_\w+")
_FRAMEWORK_VALUE = re.compile(r"[\w.,:/*^=-]{0,100}")
_PROGRAM = re.compile(
    r"(?:/usr/(?:local/)?bin/)?(?:python3?|bash|sh|fleetrun|paddleformers-cli|erniekit)"
    r"|paddle\.distributed\.launch|train|[\w./-]{1,100}\.(?:py|sh|ya?ml|json|toml)"
)
_FLAG = re.compile(r"-[A-Za-z]|--[A-Za-z][\w.-]*")
_LONG_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_HIDDEN = "(hidden, "


def redact(text: str) -> str:
    """Return the text without passwords in URLs, named credentials and well-known token formats."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def environment_of(job: PaddleJob, pods: Iterable[Pod], key: bytes) -> dict[str, str]:
    """Return template fields and nodes of the pods, to compare attempts.

    `key` makes the hashes of hidden values. It must not be stored: without it, a hash confirms no guess.
    """
    hide = _Hider(key)
    values: dict[str, str] = {}
    for role, spec in job.spec.roles():
        values[f"{role}.replicas"] = str(_replicas(job, role))
        values.update(islice(_pod_fields(str(role), spec.template.get("spec"), hide), MAX_READ))
    for pod in sorted(pods, key=lambda each: each.metadata.name)[:NAMED_NODES]:
        if pod.spec.node_name and (replica := replica_of(job.name, pod)) is not None:
            values[f"{replica}.node"] = pod.spec.node_name
    return {name[:VALUE_LENGTH]: _shorten(values[name]) for name in sorted(values)[:MAX_VALUES]}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """Return the differences between two environments.

    Hidden values are compared only if both were hashed with the same key. The key is lost with its process.
    """
    changed = (name for name in sorted({*before, *after}) if before.get(name) != after.get(name))
    found = (Change(name, before.get(name, ""), after.get(name, "")) for name in changed)
    return tuple(each for each in found if not _is_incomparable(each))


class _Hider:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self._prefix = f"{_HIDDEN}{hashlib.sha256(key).hexdigest()[:4]}-"

    def __call__(self, value: str) -> str:
        digest = hmac.digest(self._key, value.encode(errors="surrogatepass"), "sha256")
        return f"{self._prefix}{digest.hex()[:12]})"


def _is_incomparable(change: Change) -> bool:
    """Return whether a value was hashed with different keys, or hidden in only one of the attempts."""
    if not (change.before and change.after):
        return False
    hidden = [each.partition("-")[0] for each in (change.before, change.after) if each.startswith(_HIDDEN)]
    return len(hidden) == 1 or len(set(hidden)) == 2


def _replicas(job: PaddleJob, role: Role) -> int:
    """Return the number of pods that the attempt ran with; the spec may have changed since."""
    size = job.status.world_size
    ran = size is not None and size.attempt == job.status.attempt
    return int(getattr(size, role.value)) if ran else job.spec.replicas(role)


def _shorten(value: str) -> str:
    return value if len(value) <= VALUE_LENGTH else f"{value[: VALUE_LENGTH - 3]}..."


def _pod_fields(path: str, pod_spec: object, hide: _Hider) -> Iterator[tuple[str, str]]:
    for field, value in pod_spec.items() if isinstance(pod_spec, dict) else ():
        if (clear := _CLEAR_FIELDS.get(field)) is not None and isinstance(value, list):
            for position, item in enumerate(value):
                yield from _item(f"{path}.{field}", position, item, clear, hide)
        else:
            yield from _leaves(f"{path}.{field}", value, None if field in _POD_FIELDS else hide)


def _item(path: str, position: int, item: object, clear: set[str], hide: _Hider) -> Iterator[tuple[str, str]]:
    """Yield the fields of a container or a volume."""
    name = f"{path}.{_name(item, position)}"
    for field, value in item.items() if isinstance(item, dict) else ():
        match field, value:
            case "name", _:
                continue
            case "env", list():
                variables = (each for each in value if isinstance(each, dict))
                yield from ((f"{name}.env.{each.get('name')}", _variable(each, hide)) for each in variables)
            case (("command" | "args"), list()):
                yield from _arguments(f"{name}.{field}", value, hide)
            case _:
                yield from _leaves(f"{name}.{field}", value, None if field in clear else hide)


def _leaves(path: str, value: object, hide: _Hider | None, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the leaves of a field by path; items of lists are named by their name, if they have one."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each, hide, depth + 1)
    elif isinstance(value, list):
        for position, each in enumerate(value):
            yield from _leaves(f"{path}.{_name(each, position)}", each, hide, depth + 1)
    else:
        yield path, hide(str(value)) if hide else str(value)


def _name(item: object, position: int) -> object:
    return item.get("name", position) if isinstance(item, dict) else position


def _variable(entry: JsonObject, hide: _Hider) -> str:
    """Return the value of a variable as it is kept; a reference to a Secret is not secret."""
    name, value, source = str(entry.get("name", "")), str(entry.get("value", "")), entry.get("valueFrom")
    if isinstance(source, dict):
        text = msgspec.json.encode(source).decode()
        return text if _REFERENCES.issuperset(source) else hide(text)
    if _SECRET_NAME.search(name):
        return hide(value) if value else ""
    is_clear = _HARMLESS.fullmatch(value) or (
        _FRAMEWORK_VARIABLE.fullmatch(name) and _FRAMEWORK_VALUE.fullmatch(value)
    )
    return value if is_clear else hide(value)


def _arguments(path: str, arguments: list[object], hide: _Hider) -> Iterator[tuple[str, str]]:
    """Yield the words of a command: programs, flags, and the numbers of flags that ask for no secret."""
    before = ""
    for position, each in enumerate(arguments):
        word = each if isinstance(each, str) else ""
        flag, assigned, value = word.partition("=")
        if assigned and _LONG_FLAG.fullmatch(flag):
            shown = word if _is_number_of(flag, value) else f"{flag}={hide(value)}"
        elif _PROGRAM.fullmatch(word) or _FLAG.fullmatch(word) or _is_number_of(before, word):
            shown = word
        else:
            shown = hide(word)
        yield f"{path}.{position}", shown
        before = word


def _is_number_of(flag: str, value: str) -> bool:
    named = _LONG_FLAG.fullmatch(flag) and not _SECRET_NAME.search(flag)
    return bool(named and _HARMLESS.fullmatch(value))
