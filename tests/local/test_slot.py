"""Each job's own ports and addresses."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys

import pytest

from paddlejob.api import names
from paddlejob.local import slot
from paddlejob.local.errors import InputError
from paddlejob.local.slot import candidate_blocks, reserve


def test_slots_never_overlap():
    slots = [reserve() for _ in range(50)]
    ports = {port for each in slots for port in range(each.port_range[0], each.port_range[1] + 1)}
    addresses = {each.address(number) for each in slots for number in (0, 1, 4000)}
    for each in slots:
        each.close()
    assert len(ports) == 50 * names.PORTS_PER_POD
    assert len(addresses) == 150


def test_addresses_are_loopback_and_not_the_usual_one():
    with reserve() as held:
        address = ipaddress.ip_address(held.address(0))
    assert address.is_loopback
    assert address > ipaddress.ip_address("127.0.15.255")


def test_a_slot_has_an_end():
    with reserve() as held, pytest.raises(InputError, match="at most 4094 pods"):
        held.address(4094)


def test_blocks_stay_out_of_the_kernels_own_range():
    blocks = list(candidate_blocks((32768, 60999)))
    assert all(port + names.PORTS_PER_POD <= 32768 or port > 60999 for port in blocks)
    assert len(blocks) > 500


def test_where_everything_is_the_kernels_any_block_will_do():
    assert len(list(candidate_blocks((1024, 65535)))) > 2000


def test_a_block_with_a_busy_port_is_passed_over(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setattr(slot, "candidate_blocks", lambda _: iter([port - 3]))
        with pytest.raises(InputError, match="free ports in a row"):
            reserve()


HOLDER = (
    "from paddlejob.local.slot import reserve; held = reserve(); print(held.base_port, flush=True); input()"
)


def test_another_process_holds_its_slot_until_it_dies(monkeypatch):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        port = int(holder.stdout.readline())
        monkeypatch.setattr(slot, "candidate_blocks", lambda _: iter([port]))
        with pytest.raises(InputError):
            reserve()
        holder.kill()
    with reserve() as free:
        assert free.base_port == port
