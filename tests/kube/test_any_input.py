"""Whatever a kubeconfig, a plugin or a server says: an answer or the error that is documented, and soon."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kube.informer_scene import Scene, play
from paddlejob.kube import errors, responses, transport
from paddlejob.kube.decoding import MAX_DEPTH, without_deeper
from paddlejob.kube.transport import auth
from paddlejob.kube.transport.cluster import ExecPlugin, parse_url, proxy_from_env
from paddlejob.kube.transport.config import load_config, read_kubeconfig
from paddlejob.kube.transport.http import HttpTransport
from tests.support.fuzz import TEXT, VALUES, WORDS, changed, encodable, mangled, refusal

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "team"}}],
    "clusters": [
        {
            "name": "a",
            "cluster": {
                "server": "https://10.0.0.1:6443/prefix",
                "tls-server-name": "api",
                "insecure-skip-tls-verify": False,
                "certificate-authority-data": "YQ==",
                "proxy-url": "http://proxy:3128",
            },
        }
    ],
    "users": [
        {
            "name": "a",
            "user": {
                "token": "t",
                "client-certificate-data": "YQ==",
                "client-key-data": "YQ==",
                "as": "me",
                "as-groups": ["a"],
                "as-user-extra": {"a": ["b"]},
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "./plugin",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                    "interactiveMode": "Never",
                    "provideClusterInfo": True,
                },
            },
        }
    ],
}
BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)
"""Nine times as many items with every line."""
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kube") / "config"


KUBECONFIG_TEXTS = (
    mangled(yaml.safe_dump(KUBECONFIG), json.dumps(KUBECONFIG)).map(encodable)
    | changed(KUBECONFIG).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
)


@given(text=KUBECONFIG_TEXTS)
@example(text=BOMB.encode())
@example(text=MERGED.encode())
@example(text=b"a: &a [*a]")
@example(text=b"a: &a\n  b: *a\nclusters: *a")
def test_any_kubeconfig_is_read_or_refused(file: Path, text: bytes):
    file.write_bytes(text)
    said = refusal(lambda: HttpTransport(read_kubeconfig([file])), errors.ConfigError)
    assert "\n" not in said


PLANTED = {"token": "planted-token", "password": "planted-password", "client-key-data": "cGxhbnRlZC1rZXkK"}
USERS = [{"name": "a", "user": PLANTED}]


@given(text=changed({**KUBECONFIG, "users": USERS}).map(json.dumps))
def test_no_kubeconfig_makes_an_error_show_its_secrets(file: Path, text: str):
    file.write_text(text)
    assert "planted" not in refusal(lambda: HttpTransport(read_kubeconfig([file])), errors.ConfigError)


@given(server=TEXT, variables=st.dictionaries(st.sampled_from(["HTTPS_PROXY", "NO_PROXY"]), TEXT | WORDS))
def test_any_url_is_accepted_or_a_config_error(server: str, variables: dict[str, str]):
    def use() -> None:
        parts = parse_url(f"https://{server}", "server", "https://HOST:PORT")
        proxy_from_env(parts.geturl(), variables)

    refusal(use, errors.ConfigError)


@given(host=TEXT, port=TEXT, namespace=st.binary(max_size=20))
@example(host="0", port="[", namespace=b"")
def test_any_pod_environment_is_accepted_or_a_config_error(tmp_path_factory, host, port, namespace):
    account = tmp_path_factory.getbasetemp() / "account"
    account.mkdir(exist_ok=True)
    (account / "token").write_text("t")
    (account / "namespace").write_bytes(namespace)
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(account)}
    refusal(lambda: HttpTransport(load_config(env=env, service_account=account)), errors.ConfigError)


EVENT = {
    "type": "ADDED",
    "object": {
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "c",
            "resourceVersion": "5",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "b"},
            "annotations": {"k8s.io/initial-events-end": "true"},
            "ownerReferences": [{"kind": "a", "name": "b", "uid": "c", "controller": True}],
        },
        "data": {"a": "b"},
        "message": "no",
        "code": 410,
        "details": {"retryAfterSeconds": 5},
    },
}
EVENTS = [{**EVENT, "type": kind} for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "NEW")]
LINES = st.lists(
    st.sampled_from(EVENTS).flatmap(changed).map(lambda value: json.dumps(value).encode())
    | mangled(*map(json.dumps, EVENTS)).map(encodable)
    | st.binary(max_size=40),
    min_size=1,
    max_size=4,
)


@given(lines=LINES)
@example(lines=[b'{"type": "ADDED", "object": ' + b"[" * 100_000])
@example(lines=[b'{"type": "ERROR", "object": {"code": 500, "details": {"retryAfterSeconds": 1e308}}}'])
@example(lines=[b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "\xff"}}}'])
def test_an_informer_survives_any_lines_of_a_watch(lines: list[bytes]):
    async def scenario(scene: Scene) -> None:
        scene.put("a", size="1")
        scene.transport.streams = [transport.Response(200, b"\n".join(lines))]
        async with scene.running():
            await scene.informer.synced.wait()
            scene.informer.relist()
            await scene.informer.synced.wait()
            assert scene.cached() == {"a": {"size": "1"}}

    play(scenario)


STATUS = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "no", "details": {}}


@given(
    code=st.integers(100, 599),
    body=changed(STATUS).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60),
    retry_after=TEXT,
)
@example(code=429, body=b"", retry_after="9" * 400)
@example(code=429, body=b'{"details": {"retryAfterSeconds": -1e308}}', retry_after="")
def test_any_refusal_is_an_error_of_ours(code: int, body: bytes, retry_after: str):
    error = responses.error_from(transport.Response(code, body, {"retry-after": retry_after}))
    assert error.code == code
    assert str(error)
    assert error.retry_after_seconds is None or math.isfinite(error.retry_after_seconds)


@given(body=st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode()))
@example(body=b"[" * 100_000)
@example(body=b'{"metadata": {"creationTimestamp": "9999-99-99T00:00:00Z"}}')
def test_any_body_is_decoded_or_undecodable(body: bytes):
    refusal(lambda: responses.decode(body, dict), errors.UndecodableError)
    refusal(lambda: responses.decode(body, responses.Written), errors.UndecodableError)
    refusal(lambda: responses.decode_list(body, dict), errors.UndecodableError)


@given(body=VALUES.map(lambda value: json.dumps(value).encode()), levels=st.integers(0, 5))
@example(body=b"[" * 500 + b"]" * 500, levels=MAX_DEPTH)
@example(body=b'"["', levels=0)
def test_a_cut_text_is_not_too_deep(body: bytes, levels: int):
    cut = without_deeper(body, levels)
    assert without_deeper(cut, levels) is cut
    json.loads(cut)


CREDENTIAL = {
    "kind": "ExecCredential",
    "apiVersion": "client.authentication.k8s.io/v1",
    "status": {
        "token": "t",
        "clientCertificateData": "c",
        "clientKeyData": "k",
        "expirationTimestamp": "2026-01-01T00:00:00Z",
    },
}
PLUGIN = ExecPlugin(api_version=CREDENTIAL["apiVersion"], command="plugin", interactive_mode="Never")


@given(
    printed=changed(CREDENTIAL).map(lambda value: json.dumps(value).encode())
    | mangled(json.dumps(CREDENTIAL)).map(encodable)
    | st.binary(max_size=40)
)
@example(printed=b"[" * 100_000)
@example(printed=json.dumps(CREDENTIAL).replace("2026-01", "0000-00").encode())
def test_any_plugin_output_is_a_credential_or_an_error(printed: bytes):
    refusal(lambda: auth._parse(printed, PLUGIN, ""), errors.CredentialsError)
