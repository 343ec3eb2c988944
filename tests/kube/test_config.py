from __future__ import annotations

import os

import pytest
import yaml

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.config import in_cluster_config, load_config

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def place(tmp_path):
    """A machine with nothing on it yet."""
    return Place(tmp_path)


class Place:
    def __init__(self, root):
        self.root = root
        self.service_account = root / "serviceaccount"
        self.env = {"HOME": str(root)}

    def kubeconfig(self, name):
        """Write a kubeconfig whose server, context and so on are called after it."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        short = path.name
        content = {
            "current-context": short,
            "contexts": [{"name": short, "context": {"cluster": short}}],
            "clusters": [{"name": short, "cluster": {"server": f"https://{short}.test"}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def pod(self, **files):
        self.service_account.mkdir()
        for name, text in ({"token": "t"} | files).items():
            (self.service_account / name.replace("_", ".")).write_text(text)
        self.env |= IN_POD

    def load(self, kubeconfig=None, context=None, **env):
        return load_config(kubeconfig, context, env=self.env | env, service_account=self.service_account)


def test_the_given_file_takes_precedence(place):
    place.pod()
    given, other = place.kubeconfig("given"), place.kubeconfig("other")
    assert place.load(given, KUBECONFIG=str(other)).server == "https://given.test"


def test_then_the_environment(place):
    place.pod()
    path = place.kubeconfig("listed")
    assert place.load(KUBECONFIG=str(path)).server == "https://listed.test"


def test_files_of_the_environment_that_are_missing_are_passed_over(place):
    listed = os.pathsep.join(["", "/missing", str(place.kubeconfig("listed"))])
    assert place.load(KUBECONFIG=listed).server == "https://listed.test"


def test_an_environment_without_any_file_is_an_error(place):
    place.kubeconfig(".kube/config")
    with pytest.raises(ConfigError, match="KUBECONFIG: no such file: '/missing'"):
        place.load(KUBECONFIG="/missing")


def test_then_the_pod(place):
    place.pod()
    place.kubeconfig(".kube/config")
    assert place.load().server == "https://10.96.0.1:443"


def test_then_the_home_directory(place):
    place.kubeconfig(".kube/config")
    assert place.load().server == "https://config.test"


def test_a_context_means_a_kubeconfig_even_in_a_pod(place):
    place.pod()
    place.kubeconfig(".kube/config")
    assert place.load(context="config").server == "https://config.test"


def test_a_missing_configuration_lists_all_sources(place):
    with pytest.raises(ConfigError) as caught:
        place.load()
    for tried in ("no kubeconfig was given", "KUBECONFIG is not set", "KUBERNETES_SERVICE_HOST is not set"):
        assert tried in str(caught.value)
    assert f"{place.root}/.kube/config does not exist" in str(caught.value)


def test_a_context_in_a_pod_without_a_kubeconfig(place):
    place.pod()
    with pytest.raises(ConfigError, match="the service account of this pod has no contexts"):
        place.load(context="dev")


def test_a_pod_has_a_token_an_authority_and_a_namespace(place):
    place.pod(ca_crt="PEM\n", namespace="team\n")
    config = place.load()
    assert (config.certificate_authority, config.namespace) == (b"PEM", "team")
    assert config.user.token_file == place.service_account / "token"


def test_a_pod_without_the_extras(place):
    place.pod()
    assert (place.load().certificate_authority, place.load().namespace) == (None, "default")


def test_a_pod_on_ipv6(place):
    place.pod()
    assert place.load(KUBERNETES_SERVICE_HOST="fd00::1").server == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({}, "KUBERNETES_SERVICE_HOST is not set"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "KUBERNETES_SERVICE_PORT is not set"),
        (IN_POD, "token does not exist"),
    ],
)
def test_not_in_a_pod(place, env, sentence):
    with pytest.raises(ConfigError, match=f"not running in a pod: .*{sentence}"):
        in_cluster_config(env, place.service_account)


def test_an_authority_that_cannot_be_read(place):
    place.pod()
    (place.service_account / "ca.crt").mkdir()
    with pytest.raises(ConfigError, match=r"unable to read .*ca\.crt: Is a directory"):
        place.load()


def test_the_proxy_of_the_environment(place):
    place.kubeconfig(".kube/config")
    assert place.load(HTTPS_PROXY="http://proxy:1").proxy_url == "http://proxy:1"
    assert place.load(HTTPS_PROXY="http://proxy:1", NO_PROXY="config.test").proxy_url == ""


def test_the_proxy_of_the_kubeconfig_takes_precedence(place):
    path = place.kubeconfig("given")
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = "http://mine:1"
    path.write_text(yaml.safe_dump(content))
    assert place.load(path, HTTPS_PROXY="socks5://proxy:1").proxy_url == "http://mine:1"


def test_the_real_environment_is_the_default(place, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig("real")))
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    assert load_config().server == "https://real.test"
