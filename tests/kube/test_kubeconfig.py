from __future__ import annotations

import base64

import pytest
import yaml

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.cluster import Impersonation, User
from paddlejob.kube.transport.config import read_kubeconfig

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
CA = b"-----BEGIN CERTIFICATE-----"


def kubeconfig(cluster=None, user=None, context=None, name="dev"):
    """A kubeconfig with one context, cluster and user, all of one name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name} | (context or {})}],
        "clusters": [{"name": name, "cluster": {"server": "https://kube.test:6443"} | (cluster or {})}],
        "users": [{"name": name, "user": user}],
    }


@pytest.fixture
def read(tmp_path):
    """Write a kubeconfig and read it."""

    def write_and_read(content, context=None):
        path = tmp_path / "config"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return read_kubeconfig([path], context)

    return write_and_read


def b64(data):
    return base64.b64encode(data).decode()


def test_the_least_there_can_be(read):
    config = read(kubeconfig(user=None))
    assert (config.server, config.namespace, config.user) == ("https://kube.test:6443", "default", User())
    assert config.certificate_authority is None


def test_a_context_without_a_user(read):
    assert read(kubeconfig(context={"user": ""})).user == User()


def test_the_namespace_of_the_context(read):
    assert read(kubeconfig(context={"namespace": "team"})).namespace == "team"


def test_a_path_before_the_api_and_no_slash_at_the_end(read):
    config = read(kubeconfig(cluster={"server": "https://rancher.test/k8s/clusters/c-1/"}))
    assert config.server == "https://rancher.test/k8s/clusters/c-1"


def test_cluster_settings(read):
    config = read(kubeconfig(cluster={"tls-server-name": "api", "proxy-url": "http://proxy:3128"}))
    assert (config.tls_server_name, config.proxy_url) == ("api", "http://proxy:3128")
    assert read(kubeconfig(cluster={"insecure-skip-tls-verify": True})).insecure_skip_tls_verify


def test_the_authority_as_a_file_beside_the_kubeconfig(read, tmp_path):
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_bytes(CA)
    assert read(kubeconfig(cluster={"certificate-authority": "pki/ca.crt"})).certificate_authority == CA


def test_inline_data_takes_precedence_over_the_file(read):
    cluster = {"certificate-authority": "missing", "certificate-authority-data": b64(CA)}
    assert read(kubeconfig(cluster=cluster)).certificate_authority == CA


def test_wrapped_base64(read):
    text = b64(CA)
    cluster = {"certificate-authority-data": f"{text[:8]}\n{text[8:]}\n"}
    assert read(kubeconfig(cluster=cluster)).certificate_authority == CA


@pytest.mark.parametrize(
    ("user", "identity"),
    [
        pytest.param({"token": "t"}, User(token="t"), id="a token"),
        pytest.param({"username": "u", "password": "p"}, User(username="u", password="p"), id="a password"),
        pytest.param(
            {"client-certificate-data": b64(b"cert"), "client-key-data": b64(b"key"), "token": "t"},
            User(client_certificate=b"cert", client_key=b"key", token="t"),
            id="a certificate and a token",
        ),
        pytest.param(
            {
                "token": "t",
                "as": "jane",
                "as-uid": "7",
                "as-groups": ["a", "b"],
                "as-user-extra": {"k": ["v"]},
            },
            User(
                token="t",
                impersonate=Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"k": ("v",)}),
            ),
            id="somebody else",
        ),
    ],
)
def test_users(read, user, identity):
    assert read(kubeconfig(user=user)).user == identity


def test_files_of_a_user_lie_beside_the_kubeconfig(read, tmp_path):
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("x")
    files = {"client-certificate": "tls.crt", "client-key": str(tmp_path / "tls.key"), "tokenFile": "token"}
    user = read(kubeconfig(user=files)).user
    assert (user.client_certificate, user.client_key) == (tmp_path / "tls.crt", tmp_path / "tls.key")
    assert user.token_file == tmp_path / "token"


def test_no_credentials_over_plain_http(read):
    config = read(kubeconfig(cluster={"server": "http://127.0.0.1:8001"}, user={"token": "t"}))
    assert config.user == User()


def test_exec_plugin(read):
    plugin = {
        "apiVersion": V1,
        "command": "login",
        "args": ["--fast"],
        "env": [{"name": "PROFILE", "value": "dev"}],
        "installHint": "brew install login",
        "interactiveMode": "Never",
    }
    parsed = read(kubeconfig(user={"exec": plugin})).user.exec_plugin
    assert (parsed.command, parsed.args, parsed.env) == ("login", ("--fast",), {"PROFILE": "dev"})
    assert (parsed.install_hint, parsed.interactive_mode) == ("brew install login", "Never")
    assert parsed.cluster_info is None


def test_exec_plugin_as_tools_write_it_with_nulls(read):
    plugin = {"apiVersion": V1BETA1, "command": "login", "args": None, "env": None, "interactiveMode": None}
    parsed = read(kubeconfig(user={"exec": plugin})).user.exec_plugin
    assert (parsed.args, parsed.env, parsed.interactive_mode) == ((), {}, "IfAvailable")


def test_a_relative_command_lies_beside_the_kubeconfig(read, tmp_path):
    plugin = {"apiVersion": V1BETA1, "command": "./bin/login"}
    assert read(kubeconfig(user={"exec": plugin})).user.exec_plugin.command == str(tmp_path / "bin/login")


def test_a_plugin_gets_the_cluster_info(read):
    plugin = {"apiVersion": V1BETA1, "command": "login", "provideClusterInfo": True}
    cluster = {
        "certificate-authority-data": b64(CA),
        "tls-server-name": "api",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    assert read(kubeconfig(cluster=cluster, user={"exec": plugin})).user.exec_plugin.cluster_info == {
        "server": "https://kube.test:6443",
        "tls-server-name": "api",
        "certificate-authority-data": b64(CA),
        "config": {"audience": "x"},
    }


def test_another_context(read):
    content = kubeconfig(context={"namespace": "one"})
    content["contexts"].append({"name": "other", "context": {"cluster": "dev", "namespace": "two"}})
    assert (read(content).namespace, read(content, "other").namespace) == ("one", "two")


def test_the_first_file_wins_whole(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(yaml.safe_dump(kubeconfig(user={"token": "first"})))
    later = kubeconfig(user={"token": "second", "as": "jane"}, cluster={"tls-server-name": "second"})
    second.write_text(yaml.safe_dump(later | {"current-context": "elsewhere"}))
    config = read_kubeconfig([first, second])
    assert (config.user, config.tls_server_name) == (User(token="first"), "")


def test_files_complete_each_other_and_paths_start_from_their_own(tmp_path):
    parts = kubeconfig(user={"tokenFile": "token"})
    for directory, keys in [("a", ("current-context", "contexts")), ("b", ("clusters", "users"))]:
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "config").write_text(yaml.safe_dump({key: parts[key] for key in keys}))
    config = read_kubeconfig([tmp_path / "a/config", tmp_path / "b/config"])
    assert config.user.token_file == tmp_path / "b/token"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("", "current-context is not set; choose one of: none", id="an empty file"),
        pytest.param("just text", "config: Expected `object`, got `str`", id="no mapping"),
        pytest.param("a: [", r"is not valid YAML \(line \d\)", id="broken YAML"),
        pytest.param("a: \x00", "is not valid YAML$", id="no text"),
        pytest.param(
            kubeconfig(user={"token": 5}),
            r"Expected `str`, got `int` - at `\$.users\[0\].user.token`",
            id="wrong type",
        ),
        pytest.param(
            kubeconfig() | {"current-context": ""},
            "current-context is not set; choose one of: dev",
            id="no current context",
        ),
        pytest.param(
            kubeconfig() | {"current-context": "x"},
            "context 'x' does not exist; choose one of: dev",
            id="unknown context",
        ),
        pytest.param(
            kubeconfig(context={"cluster": "x"}),
            "context 'dev': cluster 'x' does not exist; choose one of: dev",
            id="unknown cluster",
        ),
        pytest.param(
            kubeconfig(context={"user": "x"}),
            "context 'dev': user 'x' does not exist; choose one of: dev",
            id="unknown user",
        ),
        pytest.param(
            kubeconfig(cluster={"server": "kube.test:6443"}),
            "server: invalid URL 'kube.test:6443'; write https://",
            id="no scheme",
        ),
        pytest.param(kubeconfig(cluster={"server": ""}), "server: invalid URL ''", id="no server"),
        pytest.param(
            kubeconfig(cluster={"certificate-authority": "ca.crt"}),
            "cluster 'dev': certificate-authority: unable to read .*ca.crt: No such file",
            id="no such authority",
        ),
        pytest.param("a: 2001-99-99", "is not valid YAML$", id="an impossible date"),
        pytest.param("[" * 200_000, "is not valid YAML", id="nested too deeply"),
        pytest.param(
            kubeconfig(cluster={"certificate-authority": "."}),
            "certificate-authority: unable to read .*: Is a directory",
            id="a directory",
        ),
        pytest.param(
            kubeconfig(cluster={"certificate-authority": "a\0b"}),
            "certificate-authority: unable to read .*: embedded null byte",
            id="not a path",
        ),
        pytest.param(
            kubeconfig(cluster={"certificate-authority-data": "!"}),
            "certificate-authority-data is not valid base64",
            id="no base64",
        ),
        pytest.param(
            kubeconfig(cluster={"certificate-authority-data": b64(CA), "insecure-skip-tls-verify": True}),
            "are mutually exclusive; remove one",
            id="verified and not",
        ),
        pytest.param(
            kubeconfig(cluster={"proxy-url": "socks5://p"}),
            "proxy-url: socks5:// proxies are not supported",
            id="socks",
        ),
        pytest.param(
            kubeconfig(user={"client-certificate-data": b64(b"x")}), "must be set together", id="no key"
        ),
        pytest.param(
            kubeconfig(user={"client-key": "no.key"}),
            "client-key: unable to read .*no.key: No such file",
            id="no key file",
        ),
        pytest.param(
            kubeconfig(user={"token": "t", "username": "u"}),
            "token and username are mutually exclusive; remove one",
            id="two ways",
        ),
        pytest.param(kubeconfig(user={"as-groups": ["a"]}), "require `as`", id="groups of nobody"),
        pytest.param(
            kubeconfig(user={"auth-provider": {"name": "oidc"}}),
            r"auth-provider 'oidc' is not supported; use a token or an exec plugin such as kubelogin",
            id="auth provider oidc",
        ),
        pytest.param(
            kubeconfig(user={"auth-provider": {"name": "gcp"}}),
            "auth-provider 'gcp' was removed from Kubernetes; .* exec plugin such as gke-gcloud-auth-plugin",
            id="auth provider gcp",
        ),
        pytest.param(
            kubeconfig(user={"auth-provider": {"name": "own"}}),
            "auth-provider 'own' is not supported; .* exec plugin",
            id="auth provider of one's own",
        ),
        pytest.param(
            kubeconfig(user={"exec": {"apiVersion": V1}}),
            r"user 'dev': exec\.command is required",
            id="no command",
        ),
        pytest.param(
            kubeconfig(
                user={"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "c"}}
            ),
            r"exec\.apiVersion: unsupported value .*v1alpha1'; use one of .*/v1, .*/v1beta1, and update 'c'",
            id="an old plugin",
        ),
        pytest.param(
            kubeconfig(user={"exec": {"apiVersion": V1, "command": "c"}}),
            r"exec\.interactiveMode: unsupported value ''; use one of Never, IfAvailable, Always",
            id="v1 must say whether it is interactive",
        ),
    ],
)
def test_an_error_names_the_field(read, content, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read(content)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"unable to read kubeconfig .*nowhere: No such file"):
        read_kubeconfig([tmp_path / "nowhere"])


@pytest.mark.parametrize("text", ["token: {hunter2", "users: [{user: {token: hunter2"])
def test_no_secret_in_a_message(read, text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "hunter2" not in str(caught.value)


def test_no_secret_in_a_representation(read):
    cluster = {"proxy-url": "http://me:hunter2@proxy"}
    config = read(kubeconfig(cluster=cluster, user={"token": "hunter2", "as": "jane"}))
    assert "hunter2" not in repr(config)
    assert "User(token, impersonate)" in repr(config)
