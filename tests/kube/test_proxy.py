from __future__ import annotations

import pytest

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.proxy import proxy_from_env, usable_proxy

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        pytest.param({}, "", id="none is set"),
        pytest.param({"HTTPS_PROXY": PROXY}, PROXY, id="upper case"),
        pytest.param({"https_proxy": PROXY}, PROXY, id="lower case"),
        pytest.param(
            {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY, id="upper case comes first"
        ),
        pytest.param({"HTTPS_PROXY": "proxy:3128"}, PROXY, id="without a scheme"),
        pytest.param({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, "", id="others are not for HTTPS"),
    ],
)
def test_which_variable(env, proxy):
    assert proxy_from_env("https://kube.example.org:6443", env) == proxy


def test_plain_http_has_its_own_variable():
    assert (
        proxy_from_env("http://kube.example.org", {"HTTP_PROXY": PROXY, "HTTPS_PROXY": "http://o"}) == PROXY
    )


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        pytest.param("https://kube.example.org", "", False, id="nothing is listed"),
        pytest.param("https://kube.example.org", "*", True, id="everything is listed"),
        pytest.param("https://kube.example.org", "example.org", True, id="a domain covers its hosts"),
        pytest.param("https://example.org", "example.org", True, id="a domain covers itself"),
        pytest.param("https://KUBE.Example.org", "example.ORG", True, id="in any case"),
        pytest.param("https://example.org", ".example.org", False, id="a dot leaves out the domain itself"),
        pytest.param("https://kube.example.org", ".example.org", True, id="a dot covers the hosts"),
        pytest.param("https://kube.example.org", "*.example.org", True, id="a star covers the hosts"),
        pytest.param("https://badexample.org", "example.org", False, id="the end of a word is no domain"),
        pytest.param("https://kube.example.org", "a.test, example.org ,b", True, id="one of several"),
        pytest.param("https://kube.example.org:6443", "example.org:6443", True, id="the same port"),
        pytest.param("https://kube.example.org:6443", "example.org:443", False, id="another port"),
        pytest.param("https://kube.example.org", "example.org:443", True, id="the default port"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3", True, id="an address"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:6443", True, id="an address with the port"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:1", False, id="an address with another port"),
        pytest.param("https://10.1.2.3", "10.0.0.0/8", True, id="in a range"),
        pytest.param("https://10.1.2.3", "10.2.0.0/16,192.168.0.0/16", False, id="in no range"),
        pytest.param("https://10.1.2.3", "10.1/xx", False, id="a range that is none"),
        pytest.param("https://kube.example.org", "10.0.0.0/8", False, id="a name is in no range"),
        pytest.param("https://110.1.2.3", "10.1.2.3", False, id="addresses do not match by their ends"),
        pytest.param("https://[fd00::1]:6443", "fd00::1", True, id="an IPv6 address"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", True, id="an IPv6 address with the port"),
        pytest.param("https://[fd00::1]:6443", "fd00::/8", True, id="in an IPv6 range"),
        pytest.param("https://127.0.0.1:6443", "", True, id="loopback"),
        pytest.param("https://[::1]:6443", "", True, id="IPv6 loopback"),
        pytest.param("https://localhost:6443", "", True, id="localhost"),
    ],
)
def test_no_proxy(server, no_proxy, direct):
    assert (proxy_from_env(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == "") is direct


def test_no_proxy_in_lower_case():
    assert proxy_from_env("https://a.test", {"HTTPS_PROXY": PROXY, "no_proxy": "a.test"}) == ""


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "socks5://proxy:1080",
            "the place is a proxy of kind 'socks5', and only http:// proxies can be used",
        ),
        ("https://proxy:3128", "the place is a proxy of kind 'https', and only http:// proxies can be used"),
        ("proxy:3128", "only http:// proxies can be used"),
        ("http://", "the place names no host; write it as http://HOST:PORT"),
    ],
)
def test_unusable(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        usable_proxy(url, "the place")


def test_an_unusable_proxy_of_the_environment_is_named():
    with pytest.raises(ConfigError, match="the environment's HTTPS_PROXY"):
        proxy_from_env("https://a.test", {"HTTPS_PROXY": "socks5://proxy"})
