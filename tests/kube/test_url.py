from __future__ import annotations

import pytest

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.cluster import check_proxy, parse_url, port_of, proxy_from_env, without_password

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("https://kube.test", 443),
        ("http://kube.test./a", 80),
        ("https://[fd00::1]:6443", 6443),
        ("https://me:secret@kube.test:1", 1),
    ],
)
def test_urls(url, port):
    assert port_of(parse_url(url, "server", "URL")) == port


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("kube.test:6443", "server: invalid URL 'kube.test:6443'; write URL"),
        ("", "server: invalid URL ''; write URL"),
        ("https://[fd00::1", "server: invalid URL: Invalid IPv6 URL; write URL"),
        ("https://me:secret@[fd00::1", "server: invalid URL: Invalid IPv6 URL; write URL"),
        (
            "https://me:secret@kube.test:x",
            "server: invalid URL 'https://kube.test:x': invalid port; write URL",
        ),
        ("https://kube.test:99999", "server: invalid URL 'https://kube.test:99999': invalid port; write URL"),
        ("https://api..example", "server: invalid URL 'https://api..example': invalid host name; write URL"),
        (
            f"https://{'a' * 64}.example",
            f"server: invalid URL 'https://{'a' * 64}.example': invalid host name; write URL",
        ),
    ],
)
def test_invalid_urls(url, sentence):
    with pytest.raises(ConfigError) as caught:
        parse_url(url, "server", "URL")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@kube.test:1/a", "https://kube.test:1/a"),
        ("https://me:se@cret@kube.test", "https://kube.test"),
        ("https://kube.test", "https://kube.test"),
        ("https://me:secret@[fd00::1", "(invalid URL)"),
    ],
)
def test_urls_are_shown_without_passwords(url, shown):
    assert without_password(url) == shown


def test_a_proxy_of_the_environment_is_checked_as_strictly():
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY: invalid URL 'http://proxy\.test:x': invalid port"):
        proxy_from_env("https://kube.test", {"HTTPS_PROXY": "proxy.test:x"})


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
            "proxy-url: socks5:// proxies are not supported; write http://HOST:PORT",
        ),
        ("https://proxy:3128", "proxy-url: https:// proxies are not supported; write http://HOST:PORT"),
        ("proxy:3128", "proxy-url: invalid URL 'proxy:3128'; write http://HOST:PORT"),
        ("http://", "proxy-url: invalid URL 'http://'; write http://HOST:PORT"),
        ("http://[::1", "proxy-url: invalid URL: Invalid IPv6 URL; write http://HOST:PORT"),
    ],
)
def test_unusable(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_proxy(url, "proxy-url")


def test_an_uncheck_proxy_of_the_environment_is_named():
    with pytest.raises(ConfigError, match="environment variable HTTPS_PROXY: socks5://"):
        proxy_from_env("https://a.test", {"HTTPS_PROXY": "socks5://proxy"})
