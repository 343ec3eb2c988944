"""Whatever the manifests of a split, the environment and the other pods say: taken, or refused in words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.errors import PeerFailedError, PlainJobError, SettingsError
from paddlejob.plainjob.rendezvous.barrier import AllDone, StartServers, StartTrainers
from paddlejob.plainjob.rendezvous.coordinator import CoordinatorClient, CoordinatorServer, RejoinError
from paddlejob.plainjob.settings import read_settings
from tests.support.fuzz import TEXT, VALUES, WORDS, changed, encodable, mangled, refusal

DEEP = b"[" * 100_000
FILE = {"path": "part-0", "size": 3, "sha256": "ab", "lines": 1}
SHARD = {"index": 0, "splitCount": 1, "split": "s", "files": [FILE], "version": 2}
MANIFEST = {
    "split": "s",
    "splitCount": 1,
    "by": "lines",
    "sources": [{"name": "a", "origin": "/a", "size": 3, "modifiedNs": 1, "sha256": "ab"}],
    "shards": [SHARD],
    "shared": [],
    "version": 2,
}


def bodies(good: object) -> st.SearchStrategy[bytes]:
    return (
        changed(good).map(lambda value: json.dumps(value).encode())
        | mangled(json.dumps(good)).map(encodable)
        | st.binary(max_size=40)
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    (folder / "0" / "data").mkdir(parents=True)
    (folder / "0" / "data" / "part-0").write_text("a\n\n")
    return folder


@given(whole=bodies(MANIFEST), shard=bodies(SHARD))
@example(whole=DEEP, shard=DEEP)
@example(whole=b"{}", shard=json.dumps(SHARD).replace("part-0", "../../../etc/passwd").encode())
@example(whole=b"{}", shard=json.dumps(SHARD).replace("part-0", "\\u0000").encode())
@example(whole=json.dumps(MANIFEST).replace('"size": 3', '"size": -3').encode(), shard=b"\xff")
def test_any_manifest_of_a_split_is_read_or_refused(job: Path, whole: bytes, shard: bytes):
    (job / manifest.NAME).write_bytes(whole)
    (job / "0" / manifest.NAME).write_bytes(shard)

    def read_shard() -> None:
        found = manifest.read_shard(job, 0)
        assert found is None or manifest.is_whole(job, found) in (True, False)

    refusal(lambda: manifest.read_job(job), PlainJobError)
    refusal(read_shard, PlainJobError)


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "a/../../b", "a\0b"])
def test_no_shard_has_files_elsewhere(job: Path, path: str):
    (job / "0" / manifest.NAME).write_text(json.dumps({**SHARD, "files": [{**FILE, "path": path}]}))
    assert "is not a path inside of a shard" in refusal(lambda: manifest.read_shard(job, 0), PlainJobError)


VARIABLES = [
    *("JOB_NAME", "JOB_PATH", "TRAIN_CONFIG_DIR", "JOB_NAMESPACE", "CONF_PADDLE_NIC", "CONF_PADDLE_PORT"),
    *("CONF_PADDLE_PORTS_NUM", "CONF_PADDLE_PORTS_NUM_SPARSE", "CONF_PADDLE_GRADIENT_NUM", "TRAINER_COUNT"),
    *("POD_IP", "POD_NAME", "JOB_COMPLETION_INDEX"),
]


@given(env=st.dictionaries(st.sampled_from(VARIABLES), TEXT | WORDS))
@example(env={"TRAINER_COUNT": "9" * 5000})
@example(env={"CONF_PADDLE_PORT": "٣", "JOB_COMPLETION_INDEX": "²"})
def test_any_environment_is_settings_or_an_error(env: dict[str, str]):
    assert len(refusal(lambda: read_settings(env), SettingsError)) < 20_000


FROM_TRAINER = [
    {"type": "join", "trainer": 0, "addresses": ["127.0.0.1"]},
    {"type": "serverReady", "split": "s"},
    {"type": "trainerDone"},
    {"type": "left", "reason": "exit code 3"},
]
FROM_COORDINATOR = [
    {"type": "startServers"},
    {"type": "startTrainers"},
    {"type": "allDone"},
    {"type": "abort", "trainer": 1, "reason": "exit code 3"},
    {"type": "rejected", "reason": "it has a different list of pods"},
]


def conversations(messages: list[dict[str, object]]) -> st.SearchStrategy[bytes]:
    good = st.sampled_from(messages)
    line = (
        (good | good.flatmap(changed) | VALUES).map(lambda value: json.dumps(value).encode())
        | good.flatmap(lambda value: mangled(json.dumps(value))).map(encodable)
        | st.binary(max_size=20)
    )
    return st.lists(line, max_size=6).map(b"\n".join)


def lines(*messages: dict[str, object]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in messages)


@given(said=conversations(FROM_TRAINER))
@example(said=DEEP + b"\n")
@example(said=lines(FROM_TRAINER[0], FROM_TRAINER[0]))
@example(said=lines({"type": "join", "trainer": -1, "addresses": ["127.0.0.1"]}))
def test_the_coordinator_survives_whatever_is_said_to_it(said: bytes):
    """A pod that behaves is heard after any stranger."""

    async def scenario() -> None:
        server = CoordinatorServer(("127.0.0.1", "127.0.0.2"), lambda: None)
        await server.open("127.0.0.1", 0)
        assert server._server is not None
        port = server._server.sockets[0].getsockname()[1]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said + b"\n")
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
            other, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(lines({"type": "join", "trainer": 1, "addresses": ["127.0.0.1"]}))
            async with asyncio.timeout(60):
                assert json.loads(await other.readline())["type"] == "rejected"
            writer.close()
        finally:
            await server.close()

    asyncio.run(scenario())


@given(said=conversations(FROM_COORDINATOR))
@example(said=DEEP)
@example(said=lines(FROM_COORDINATOR[0], FROM_COORDINATOR[0]))
@example(said=lines(FROM_COORDINATOR[2], FROM_COORDINATOR[2]))
def test_a_pod_waits_for_no_announcement_that_cannot_come(said: bytes):
    async def scenario() -> None:
        async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            writer.close()

        server = await asyncio.start_server(say, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        client = CoordinatorClient(reader, writer)
        async with asyncio.timeout(60):
            for kind in (StartServers, StartTrainers, AllDone):
                try:
                    await client.wait_for(kind)
                except (PeerFailedError, RejoinError):
                    continue
        await client.close()
        server.close()

    asyncio.run(scenario())
