from __future__ import annotations

import socket
import threading
import time

import pytest

from paddlejob.recorder import rendezvous


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": "10.0.0.1:61001"}, ("10.0.0.1", 61001)),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2"}, ("a", 1)),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": "[::1]:5"}, ("::1", 5)),
        ({"PADDLE_TRAINER_ID": "0", "PADDLE_MASTER": "10.0.0.1:61001"}, None),
        ({"PADDLE_MASTER": "10.0.0.1:61001"}, None),
        ({"PADDLE_TRAINER_ID": "1"}, None),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": "etcd://10.0.0.1"}, None),
    ],
)
def test_the_master_is_where_paddle_looks_for_it(environ, expected):
    assert rendezvous.master_of(environ) == expected


def test_a_rank_waits_until_the_master_listens():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        environ = {"PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": f"127.0.0.1:{listener.getsockname()[1]}"}
        waiting = threading.Thread(target=rendezvous.wait_for_master, args=(environ,), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        listener.listen()
        waiting.join(30)
        assert not waiting.is_alive()


def test_a_rank_whose_master_never_listens_goes_on(monkeypatch):
    monkeypatch.setattr(rendezvous, "WAIT_SECONDS", 0.2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        began = time.monotonic()
        master = f"127.0.0.1:{closed.getsockname()[1]}"
        rendezvous.wait_for_master({"PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": master})
    assert time.monotonic() - began >= 0.2
