"""The ports and addresses of runs on one machine."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from local.jobs import job, role
from paddlejob import port_block
from paddlejob.api import names
from paddlejob.local import ports
from paddlejob.local.errors import InputError
from paddlejob.local.ports import candidate_blocks, reserve
from paddlejob.port_block import PortBlock


def test_blocks_never_overlap():
    blocks = [reserve() for _ in range(50)]
    used = {port for each in blocks for port in range(each.first, each.last + 1)}
    addresses = {each.address(number) for each in blocks for number in (0, 1, 4000)}
    for each in blocks:
        each.close()
    assert len(used) == 50 * names.PORTS_PER_POD
    assert len(addresses) == 150


OVERLAPS = {
    "the same block": (0, 20, False),
    "one that begins inside": (7, 5, False),
    "one that ends inside": (-13, 14, False),
    "a wider one around it": (-40, 100, False),
    "the one before": (-20, 20, True),
    "the one after": (20, 3, True),
}


@pytest.mark.parametrize(("offset", "width", "free"), OVERLAPS.values(), ids=OVERLAPS)
def test_blocks_of_any_start_and_width_exclude_each_other(offset, width, free):
    with reserve() as held:
        other = port_block.reserve([held.first + offset], width)
        if other is not None:
            other.close()
        assert (other is not None) is free


def test_a_refused_candidate_leaves_no_reservation_behind():
    with reserve() as held:
        assert port_block.reserve([held.first - 20], 40) is None
        before = port_block.reserve([held.first - 20], 20)
        assert before is not None
        before.close()


def test_addresses_are_loopback_and_not_the_usual_one():
    with reserve() as held:
        address = ipaddress.ip_address(held.address(0))
    assert address.is_loopback
    assert address > ipaddress.ip_address("127.0.15.255")


@pytest.mark.parametrize("port", [0, port_block.LAST_PORT - 19])
def test_the_last_address_of_every_block_is_loopback(port):
    block = PortBlock(port, 20, ExitStack())
    assert ipaddress.ip_address(block.address(port_block.MAX_ADDRESSES - 1)).is_loopback


async def test_more_pods_than_addresses_are_refused_before_anything_starts(start, tmp_path):
    with pytest.raises(InputError, match="has 5000 pods, but one machine runs at most 4094"):
        await start(job(worker=role(5000)))
    assert not list((tmp_path / "runs").glob("job-*"))


async def test_a_live_run_does_not_grow_beyond_its_addresses(start):
    run = await start(job(ps=role(1, "sleep 60"), worker=role(1, "echo up; sleep 60")))
    await run.said("worker-0", "up")
    with pytest.raises(InputError, match="has 4095 pods"):
        run.runner.scale(4094)


def test_blocks_avoid_the_ephemeral_range():
    blocks = candidate_blocks((32768, 60999))
    assert all(port + names.PORTS_PER_POD <= 32768 or port > 60999 for port in blocks)
    assert len(blocks) > 500


def test_any_block_is_used_if_all_ports_are_ephemeral():
    assert len(candidate_blocks((1024, 65535))) > 2000


def test_a_block_with_a_busy_port_is_skipped(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setattr(ports, "candidate_blocks", lambda _: [port - 3])
        with pytest.raises(InputError, match="consecutive ports are free"):
            reserve()


HOLDER = "from paddlejob.local.ports import reserve; held = reserve(); print(held.first, flush=True); input()"


def test_another_process_holds_its_block_until_it_dies(monkeypatch):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        port = int(holder.stdout.readline())
        monkeypatch.setattr(ports, "candidate_blocks", lambda _: [port])
        with pytest.raises(InputError):
            reserve()
        holder.kill()
    with reserve() as free:
        assert free.first == port
