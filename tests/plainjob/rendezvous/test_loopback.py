from __future__ import annotations

import socket

import pytest

from paddlejob import port_block
from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.rendezvous import address
from paddlejob.plainjob.rendezvous.address import interface_address, own_address, reserve_loopback
from paddlejob.plainjob.settings import JobSettings

FIRST = 12000


def test_two_runs_at_once_share_neither_ports_nor_addresses():
    with reserve_loopback(2, FIRST, 5) as one, reserve_loopback(2, FIRST, 5) as other:
        assert one.port + 5 <= other.port
        assert not set(one.addresses) & set(other.addresses)


def test_runs_of_the_local_runner_are_respected():
    with reserve_loopback(2, FIRST, 5) as free:
        pass
    with port_block.reserve([free.port // 20 * 20], 20) as other, reserve_loopback(2, free.port, 5) as moved:
        assert moved.port > other.last
        assert not {other.address(node) for node in range(9)} & set(moved.addresses)


def test_a_large_window_is_tried_at_places_that_do_not_overlap():
    with reserve_loopback(1, FIRST, 50) as one, reserve_loopback(1, FIRST, 50) as other:
        assert one.port + 50 <= other.port


def test_a_port_in_use_anywhere_in_the_window_moves_the_run_on():
    with reserve_loopback(1, FIRST, 5) as free, socket.create_server(("127.9.9.9", free.port + 3)):
        pass
    with socket.create_server(("127.9.9.9", free.port + 3)), reserve_loopback(1, free.port, 5) as moved:
        assert moved.port > free.port


def test_when_all_are_taken_it_says_so(monkeypatch):
    monkeypatch.setattr(address, "PORT_BLOCKS", 1)
    with reserve_loopback(1, FIRST, 5), pytest.raises(SettingsError, match="no 5 consecutive ports are free"):
        reserve_loopback(1, FIRST, 5).__enter__()


def settings(**values):
    return JobSettings(job_name="j", job_path="/", train_config_dir="c", **values)


@pytest.mark.parametrize(
    ("values", "address"),
    [
        pytest.param({"pod_ip": "10.1.2.3"}, "10.1.2.3", id="what kubernetes says comes first"),
        pytest.param({"nic": "lo"}, "127.0.0.1", id="then the network device"),
    ],
)
def test_the_own_address(values, address):
    assert own_address(settings(**values)) == address


def test_a_device_that_is_not_there():
    with pytest.raises(OSError, match="No such device"):
        interface_address("nonesuch0")
