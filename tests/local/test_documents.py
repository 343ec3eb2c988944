"""What a file means to a laptop."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from local.jobs import config_map, job, role, text
from paddlejob.local.errors import InputError
from paddlejob.local.input.documents import read

DOCUMENTS = Path(__file__).parents[1] / "documents"
JOBS = sorted(path for path in DOCUMENTS.glob("*.yaml") if "-paddlejob" in path.name)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_job_of_the_docs_is_read(path):
    assert read(path.read_text()).job.spec.roles()


def test_metadata_is_completed_as_by_the_api_server():
    metadata = read(text(job())).job.metadata
    assert (metadata.namespace, metadata.generation) == ("default", 1)
    assert metadata.uid
    assert metadata.creation_timestamp is not None


def test_options_rename_the_job():
    found = read(text(job("one")), name="two", namespace="there").job
    assert (found.name, found.metadata.namespace) == ("two", "there")


def test_a_name_selects_one_of_several_jobs():
    assert read(text(job("one"), job("two")), name="two").job.name == "two"


def test_a_list_is_read_like_its_items():
    assert read(text({"apiVersion": "v1", "kind": "List", "items": [job("inside")]})).job.name == "inside"


@pytest.mark.parametrize("namespace", ["..", "/etc", "a/b", "A"])
def test_a_namespace_option_cannot_be_a_path(namespace):
    with pytest.raises(InputError, match=r"metadata\.namespace: Invalid value"):
        read(text(job()), namespace=namespace)


REFUSED = {
    "two jobs need a choice": (text(job("one"), job("two")), "choose one with --name (one, two)"),
    "an empty file": ("", "has no PaddleJob; it is empty"),
    "a file of other kinds": (text(config_map("x")), "has no PaddleJob, only ConfigMap"),
    "broken YAML": ("a: [", "the file is not valid YAML: line 2, column 1"),
    "a document that is a list": ("[1, 2]", "document 1 of the file is not an object"),
    "another group's job": (
        text({**job(), "apiVersion": "kubeflow.org/v1"}),
        "is understood; convert it with `paddlejob convert`",
    ),
    "a tab": ("a:\n\tb: 1", "line 2 is indented with a tab; use spaces"),
    "a key that is set twice": (
        "a:\n  b: 1\n  c: 2\n  b: 3",
        "line 4, column 3: b is set twice",
    ),
    "a zero byte": ("a: \0", "the file is not valid YAML"),
    "depth": ("[" * 5000 + "]" * 5000, "nested too deeply"),
    "many aliases": (
        "a: &a [x]\nb: [" + "*a, " * 60_000 + "]",
        "the file is not valid YAML: aliases repeat more than 8 MiB",
    ),
    "aliases of a long text": (
        f"a: &a [{'x' * 10_000}]\nb: &b [{'*a, ' * 100}]\nc: [{'*b, ' * 9}]",
        "the file is not valid YAML: aliases repeat more than 8 MiB",
    ),
    "a file that contains itself": (
        text(job(worker="&")).replace('"&"', "&b [*b]"),
        "nested too deeply",
    ),
    "a namespace that is a path": (
        text({**job(), "metadata": {"name": "job", "namespace": "../../etc"}}),
        'metadata.namespace: Invalid value: "../../etc": must consist of lower-case letters',
    ),
    "an absolute path as namespace": (
        text({**job(), "metadata": {"name": "job", "namespace": "/etc"}}),
        'metadata.namespace: Invalid value: "/etc"',
    ),
    "a name that is a path": (
        text(job("../../etc")),
        'metadata.name: Invalid value: "../../etc"',
    ),
    "the kind in lower case": (text({**job(), "kind": "paddlejob"}), "kind is paddlejob; write PaddleJob"),
    "an item that is no object": (text({"kind": "List", "items": [1]}), "has an item that is not an object"),
    "a config map's number": (
        text(job(), {**config_map("c"), "data": {"a": 1}}),
        "ConfigMap c: data[a]: Invalid value: 1: must be text; put it in quotes",
    ),
    "a key that leaves the volume": (text(job(), config_map("c", **{"../x": ""})), "data has the key '../x'"),
    "a key that is the directory": (text(job(), config_map("c", **{".": ""})), "data has the key '.'"),
    "no workers": (text(job(worker=role(0))), "spec.worker.replicas: Invalid value: 0"),
    "a bad name": (text(job("Not_A_Name")), "metadata.name: Invalid value"),
    "no metadata": (text({**job(), "metadata": None}), "metadata.name: Required value"),
    "a secret that is not base64": (
        text(job(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "?"}}),
        "Secret s: data is not base64",
    ),
}


@pytest.mark.parametrize(("written", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_files_are_refused_with_one_sentence(written, sentence):
    with pytest.raises(InputError) as refusal:
        read(written)
    assert sentence in str(refusal.value)


def test_config_maps_and_secrets_are_kept():
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"a": base64.b64encode(b"one").decode()},
        "stringData": {"b": "two"},
    }
    found = read(text(job(), {**config_map("c", x="1", z=None), "binaryData": {"y": "AAE="}}, secret))
    assert found.config_maps == {"c": {"x": b"1", "y": b"\x00\x01", "z": b""}}
    assert found.secrets == {"s": {"a": b"one", "b": b"two"}}


def test_objects_without_effect_are_noted():
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "honoured"}}
    notes = read(text(job(), group, claim)).notes
    assert notes == ("ignoring PodGroup g: local runs start all pods together",)
