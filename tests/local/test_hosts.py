"""The names that a pod can resolve."""

from __future__ import annotations

from paddlejob.local.runner import hosts_file


def addresses(text, name):
    return [line.split()[0] for line in text.splitlines() if name in line.split()[1:]]


def test_a_pod_resolves_itself_and_its_peers_in_every_spelling():
    text = hosts_file(
        "job-ps-0", "127.1.0.1", [("job-ps-0", "127.1.0.1"), ("job-ps-1", "127.1.0.2")], "there"
    )
    assert addresses(text, "job-ps-0") == ["127.1.0.1"]
    for spelling in ("", ".there", ".there.svc", ".there.svc.cluster.local"):
        assert addresses(text, f"job-ps-1{spelling}") == ["127.1.0.2"]
    assert addresses(text, "job-ps-0.there") == ["127.1.0.1"]


def test_without_services_only_its_own_name_is_known():
    assert addresses(hosts_file("a", "127.1.0.1", [], "x"), "b") == []
    assert addresses(hosts_file("a", "127.1.0.1", [], "x"), "localhost")[0] == "127.0.0.1"


def test_a_new_service_only_appends_to_the_hosts_file():
    before = hosts_file("a", "127.1.0.1", [("a", "127.1.0.1")], "x")
    after = hosts_file("a", "127.1.0.1", [("a", "127.1.0.1"), ("b", "127.1.0.2")], "x")
    assert after.startswith(before)
