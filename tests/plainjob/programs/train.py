"""Stands for a training script: opens the ports of real servers, in their order, and does as it is told.

    train.py [--fail TRAINER:CODE] [--hang] [--helper] [--server-ends CODE] [--server-fails]

As with Paddle, server 0 opens its own port only after all trainers have met at its rendezvous.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ME = int(os.environ["PADDLE_TRAINER_ID"])
TRAINERS = int(os.environ["PADDLE_TRAINERS_NUM"])


def argument(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def rendezvous():
    host, port = os.environ["PADDLE_GLOO_HTTP_ENDPOINT"].rsplit(":", 1)
    return host, int(port)


def serve():
    if "--server-fails" in sys.argv:
        sys.exit(0)  # as Paddle does when it cannot listen
    if ME == 0:
        meet()
    with socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"]))) as server:
        print("serving", flush=True)
        while True:
            connection, _ = server.accept()
            if connection.recv(16) == b"end" and ME == 1:
                sys.exit(int(argument("--server-ends")))


def meet():
    """Hold all trainers until the last has come."""
    met = []
    with socket.create_server(("", rendezvous()[1])) as meeting:
        while len(met) < TRAINERS:
            connection, _ = meeting.accept()
            if connection.recv(16):  # not a mere look whether the port is open
                met.append(connection)
    for connection in met:
        connection.sendall(b"met")


def train():
    if "--helper" in sys.argv:  # as what feeds a trainer with data
        subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with socket.create_connection(rendezvous()) as meeting:
        meeting.sendall(b"here")
        assert meeting.recv(16) == b"met"
    seen = {
        name: os.environ[name]
        for name in ("PADDLE_PSERVERS_IP_PORT_LIST", "POD_IP", "DATA_DIR", "CHECKPOINT_DIR")
    }
    data = {path.name: path.read_text() for path in Path("data").iterdir()}
    print(
        json.dumps({"trainer": ME, "arguments": sys.argv[1:], "environment": seen, "data": data}), flush=True
    )
    if argument("--server-ends") and ME == 1:
        with socket.create_connection((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"]) - 2)) as server:
            server.sendall(b"end")
        signal.pause()
    trainer, _, code = (argument("--fail") or "-1:0").partition(":")
    if int(trainer) == ME:
        sys.exit(int(code))
    if "--hang" in sys.argv or int(trainer) >= 0:
        signal.pause()
    print("trained", flush=True)


serve() if os.environ["TRAINING_ROLE"] == "PSERVER" else train()
