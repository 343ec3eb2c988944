from __future__ import annotations

import pytest

from paddlejob.kube.address import port_of, read_address
from paddlejob.kube.errors import ConfigError
from paddlejob.kube.proxy import proxy_from_env


@pytest.mark.parametrize(
    ("url", "port"),
    [("https://kube.test", 443), ("http://kube.test/a", 80), ("https://[fd00::1]:6443", 6443)],
)
def test_addresses(url, port):
    assert port_of(read_address(url, "the server", "URL")) == port


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("kube.test:6443", "the server 'kube.test:6443' is no address; write URL"),
        ("https://[fd00::1", "the server is no address: Invalid IPv6 URL; write URL"),
        (
            "https://me:secret@kube.test:x",
            "the server 'https://kube.test:x' has no port that exists; write URL",
        ),
    ],
)
def test_what_leads_nowhere(url, sentence):
    with pytest.raises(ConfigError) as caught:
        read_address(url, "the server", "URL")
    assert str(caught.value) == sentence


def test_a_proxy_of_the_environment_is_read_as_strictly():
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY 'http://proxy\.test:x' has no port that exists"):
        proxy_from_env("https://kube.test", {"HTTPS_PROXY": "proxy.test:x"})
