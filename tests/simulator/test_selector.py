from __future__ import annotations

import pytest

from paddlejob.kube.errors import BadRequestError
from simkube.apiserver.selector import select

FIELDS = frozenset(["metadata.name", "spec.hostNetwork", "status.phase"])
BODY = {
    "metadata": {"name": "a", "labels": {"app": "web", "tier": "1", "example.org/x": "y"}},
    "spec": {"hostNetwork": True},
}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("app=web", True),
        ("app == web", True),
        (" app = web , tier = 1 ", True),
        ("app=web,tier=2", False),
        ("app!=web", False),
        ("missing!=web", True),
        ("app in (web, api)", True),
        ("app in (api)", False),
        ("app notin (web)", False),
        ("missing notin (web)", True),
        ("app", True),
        ("missing", False),
        ("!app", False),
        ("!missing", True),
        ("example.org/x=y", True),
        ("app=", False),
        ("tier>0", True),
        ("tier<1", False),
        ("app>1", False),
        ("in in (x)", False),
        ("notin", False),
    ],
)
def test_labels(selector: str, selected: bool) -> None:
    matches = select(selector, "", FIELDS)
    assert matches is not None
    assert matches(BODY) is selected


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("metadata.name=a", True),
        ("metadata.name==b", False),
        ("metadata.name!=b", True),
        ("status.phase=", True),
        ("spec.hostNetwork=true", True),
        ("metadata.name=a,status.phase=Running", False),
    ],
)
def test_fields(selector: str, selected: bool) -> None:
    matches = select("", selector, FIELDS)
    assert matches is not None
    assert matches(BODY) is selected


def test_no_selector_selects_everything() -> None:
    assert select("", "", FIELDS) is None


def test_both_selectors_must_hold() -> None:
    matches = select("app=web", "metadata.name=b", FIELDS)
    assert matches is not None
    assert not matches(BODY)


@pytest.mark.parametrize("selector", ["a b", "a in", "a in (b", "=b", "a,,b", "a=b c", "tier>x", "a in b"])
def test_labels_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(BadRequestError):
        select(selector, "", FIELDS)


@pytest.mark.parametrize("selector", ["metadata.name", "spec.other=1", "=x"])
def test_fields_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(BadRequestError):
        select("", selector, FIELDS)
