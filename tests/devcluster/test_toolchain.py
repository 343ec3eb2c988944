from __future__ import annotations

import pytest

from devcluster.build.toolchain import find_go, go_environment, parse_go_version
from devcluster.errors import DevclusterError


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8\n", (1, 26, 8)),
        ("go1.27rc1", (1, 27, 0)),
        ("go1.25", (1, 25, 0)),
        ("devel +abc", ()),
        ("", ()),
    ],
)
def test_go_versions_are_read(text, version):
    assert parse_go_version(text) == version


def test_the_machines_own_go_is_used_when_it_is_new_enough(cache, go):
    assert find_go((1, 25, 0), pytest.fail) == go.path()


def packaged_go(cache, version):
    program = cache / "go-1.26.0" / "go" / "bin" / "go"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return program


def test_an_old_go_gives_way_to_the_one_in_the_cache(cache, go):
    go.behave("", version="go1.19.8")
    program = packaged_go(cache, "go1.26.6")
    assert find_go((1, 25, 0), pytest.fail) == program


def test_a_packaged_go_that_is_too_old_is_named(cache, go):
    go.behave("", version="go1.19.8")
    packaged_go(cache, "go1.26.6")
    with pytest.raises(DevclusterError, match=r"older than Go 1\.30\.0; delete"):
        find_go((1, 30, 0), pytest.fail)


def test_the_callers_proxy_settings_reach_the_build(monkeypatch):
    monkeypatch.setenv("GOPROXY", "off")
    assert go_environment() | {"GOPROXY": "off", "CGO_ENABLED": "0", "GOWORK": "off"} == go_environment()
