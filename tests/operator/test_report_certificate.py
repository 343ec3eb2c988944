"""The certificate that reports are sent to, made with OpenSSL's program."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from paddlejob.operator.reports.certificate import _make


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_certificate_is_made_on_every_loop_that_the_operator_runs_on(loop):
    """uvloop gives a program a socket for its output, which cannot be opened by its name."""
    with asyncio.Runner(loop_factory=loop) as runner:
        made = runner.run(_make("paddle-controller-manager-reports.paddle-system.svc"))
    assert made.certificate.startswith("-----BEGIN CERTIFICATE-----")
    made.server_context()
