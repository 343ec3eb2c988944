"""Volumes that are files of objects."""

from __future__ import annotations

import pytest

from paddlejob.kubelet import (
    CONFIG_MAP,
    SECRET,
    ConfigError,
    File,
    Source,
    Sources,
    files_of,
    stays_inside,
)

OBJECTS = {
    Source(CONFIG_MAP, "files"): {"a": b"1", "b": b"2"},
    Source(SECRET, "hidden"): {"key": b"secret"},
}
POD = {
    "metadata": {"name": "pod-1"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]},
}
SOURCES = Sources(POD, OBJECTS.get, {"cpu": 8})

CPU = {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}
NAME = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
VOLUMES = {
    "a config map": ({"configMap": {"name": "files"}}, [File("a", b"1", 0o644), File("b", b"2", 0o644)]),
    "a chosen key with its own mode": (
        {"configMap": {"name": "files", "items": [{"key": "a", "path": "x/y", "mode": 0o755}]}},
        [File("x/y", b"1", 0o755)],
    ),
    "a secret": ({"secret": {"secretName": "hidden", "defaultMode": 0o400}}, [File("key", b"secret", 0o400)]),
    "a container's limit": ({"downwardAPI": {"items": [CPU]}}, [File("cpu", b"2", 0o644)]),
    "several in one": (
        {"projected": {"defaultMode": 0o600, "sources": [{"downwardAPI": {"items": [NAME]}}]}},
        [File("name", b"pod-1", 0o600)],
    ),
    "an optional one that is missing": ({"configMap": {"name": "none", "optional": True}}, []),
    "an optional key that is missing": (
        {"configMap": {"name": "files", "optional": True, "items": [{"key": "z", "path": "z"}]}},
        [],
    ),
    "a volume of another kind": ({"emptyDir": {}}, []),
}


@pytest.mark.parametrize(("volume", "files"), VOLUMES.values(), ids=VOLUMES)
def test_files_of_a_volume(volume, files):
    assert list(files_of(volume, SOURCES)) == files


MISSING = {
    "a config map": ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
    "a key": (
        {"configMap": {"name": "files", "items": [{"key": "z", "path": "z"}]}},
        "references non-existent config key: z",
    ),
}


@pytest.mark.parametrize(("volume", "sentence"), MISSING.values(), ids=MISSING)
def test_a_missing_object_is_an_error(volume, sentence):
    with pytest.raises(ConfigError, match=sentence):
        list(files_of(volume, SOURCES))


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../../b"])
def test_paths_that_lead_out_of_the_volume(path):
    assert not stays_inside(path)


@pytest.mark.parametrize("path", ["a", "a/b", "..a", "a..b"])
def test_paths_that_stay_inside(path):
    assert stays_inside(path)
