"""The environment in a record shows changes of a job between attempts, and none of its credentials."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from paddlejob.history import compose
from paddlejob.history.environment import changes, environment_of, redact
from simkube.build import job, snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY, OTHER_KEY = b"k" * 16, b"o" * 16
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLXBsYW50ZWQ"
CONTAINER = "worker.containers.paddle"


def environment(key: bytes = KEY, **container: object) -> dict[str, str]:
    return environment_of(job().worker(1, **container).build(), (), key)


def variable(name: str, value: str) -> dict[str, object]:
    return {"env": [{"name": name, "value": value}]}


CREDENTIALS = {
    "a variable named as a token": variable("API_TOKEN", "planted"),
    "a personal access token": variable("GITHUB_PAT", "planted"),
    "an abbreviated password": variable("DB_PW", "planted"),
    "a numeric password": variable("DB_PW", "20260101"),
    "a variable with an innocent name": variable("SETTINGS", "planted"),
    "a password in a URL": variable("DB", "postgres://me:planted@db:5432/x"),
    "a token as the user name of a URL": variable("REPOSITORY", "https://planted@git.example/x"),
    "a webhook": variable("NOTIFY", "https://hooks.example/services/T0/B0/planted"),
    "a signed URL": variable("DATA", "https://store.example/data?sv=1&sig=planted"),
    "a JSON Web Token": variable("IDENTITY", JWT),
    "options in a variable": variable("OPTS", "-Dpassword=planted -Dn=3"),
    "a framework's variable with a URL": variable("PADDLE_ETCD", "http://me:planted@etcd:2379"),
    "a framework's variable named as a key": variable("PADDLE_API_KEY", "planted"),
    "the argument after a flag": {"args": ["--hf-token", "planted"]},
    "the number after a flag named as a secret": {"args": ["--pin", "20260101"]},
    "an assigned flag": {"args": ["--api_key=planted"]},
    "a password attached to a short flag": {"args": ["mysql", "-pplanted"]},
    "a number after a short flag": {"args": ["mysql", "-p", "20260101"]},
    "a user and a password": {"args": ["curl", "-u", "me:planted"]},
    "a cookie": {"args": ["curl", "-H", "Cookie: session=planted"]},
    "a header": {"command": ["curl", "-H", "Authorization: Bearer planted"]},
    "a shell script": {"command": ["sh", "-c", "PASSWORD='planted' python train.py"]},
    "a JSON argument": {"command": ["x", '{"secret": "planted"}']},
    "a header of a probe": {
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "planted"}]}}
    },
    "a lifecycle hook": {"lifecycle": {"preStop": {"exec": {"command": ["x", "planted"]}}}},
    "a container field that this version does not know": {"futureField": {"value": "planted"}},
    "an unknown source of a variable": {"env": [{"name": "X", "valueFrom": {"vault": "planted"}}]},
    "attributes of a CSI volume": {
        "pod": {"volumes": [{"name": "data", "csi": {"volumeAttributes": {"user": "planted"}}}]}
    },
    "options of a flexVolume": {
        "pod": {"volumes": [{"name": "data", "flexVolume": {"options": {"user": "planted"}}}]}
    },
}


@pytest.mark.parametrize("container", CREDENTIALS.values(), ids=CREDENTIALS)
def test_credentials_are_replaced_by_a_keyed_hash(container):
    found = str(environment(**container))
    assert "planted" not in found
    assert "20260101" not in found
    assert JWT[:20] not in found
    assert "(hidden, " in found


IN_CLEAR = {
    "image": ({"image": "a:1"}, f"{CONTAINER}.image", "a:1"),
    "resources": (
        {"resources": {"limits": {"cpu": "2"}}},
        f"{CONTAINER}.resources.limits.cpu",
        "2",
    ),
    "a number": (variable("LR", "1e-3"), f"{CONTAINER}.env.LR", "1e-3"),
    "a switch": (variable("AMP", "True"), f"{CONTAINER}.env.AMP", "True"),
    "a variable of Paddle": (variable("FLAGS_x", "a,b"), f"{CONTAINER}.env.FLAGS_x", "a,b"),
    "a reference": (
        {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        f"{CONTAINER}.env.T",
        '{"secretKeyRef":{"name":"s","key":"k"}}',
    ),
    "a program": ({"command": ["python", "train.py"]}, f"{CONTAINER}.command.1", "train.py"),
    "the number of a flag": ({"args": ["--lr", "0.1"]}, f"{CONTAINER}.args.1", "0.1"),
    "an assigned number": ({"args": ["--lr=0.1"]}, f"{CONTAINER}.args.0", "--lr=0.1"),
    "a node selector": ({"pod": {"nodeSelector": {"gpu": "a100"}}}, "worker.nodeSelector.gpu", "a100"),
    "a volume claim": (
        {"pod": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}},
        "worker.volumes.data.persistentVolumeClaim.claimName",
        "c",
    ),
}


@pytest.mark.parametrize(("container", "name", "shown"), IN_CLEAR.values(), ids=IN_CLEAR)
def test_fields_of_the_allow_list_are_kept_in_clear_text(container, name, shown):
    assert environment(**container)[name] == shown


def test_changes_name_the_fields_and_hide_the_values():
    before = environment(image="a:1", **variable("API_TOKEN", "planted-1"))
    after = environment(image="a:2", **variable("API_TOKEN", "planted-2"))
    token, image = changes(before, after)
    assert (image.name, image.before, image.after) == (f"{CONTAINER}.image", "a:1", "a:2")
    assert token.name == f"{CONTAINER}.env.API_TOKEN"
    assert token.before != token.after
    assert "planted" not in str(token)
    assert not changes(before, before)


@pytest.mark.parametrize(
    "kept",
    [
        environment(OTHER_KEY, **variable("MODEL", "planted")),
        {
            **environment(**variable("MODEL", "planted")),
            f"{CONTAINER}.env.MODEL": "(hidden, sha256 12345678)",
        },
        {**environment(**variable("MODEL", "planted")), f"{CONTAINER}.env.MODEL": "planted"},
    ],
    ids=["hashed by an earlier operator", "an unkeyed hash", "clear text of an earlier version"],
)
def test_values_that_cannot_be_compared_are_no_change(kept):
    assert not changes(kept, environment(**variable("MODEL", "planted")))


def test_a_variable_that_appears_is_a_change():
    [change] = changes(environment(), environment(**variable("MODEL", "planted")))
    assert (change.name, change.before) == (f"{CONTAINER}.env.MODEL", "")


def test_the_hash_depends_on_the_key():
    """The part after the dash too: the part before it only says which key was used."""
    hidden = [environment(key, **variable("MODEL", "planted")).values() for key in (KEY, OTHER_KEY)]
    digests = [re.findall(r"\(hidden, \w{4}-(\w{12})\)", str(values)) for values in hidden]
    assert [len(each) for each in digests] == [1, 1]
    assert digests[0] != digests[1]


def test_nodes_and_the_number_of_pods_are_kept():
    given = snapshot(job().worker(2)).pod("worker", 0, node="node-a").build()
    found = environment_of(given.job, given.pods, KEY)
    assert (found["worker.replicas"], found["worker-0.node"]) == ("2", "node-a")


def test_a_template_without_end_is_bounded():
    deep: dict = {"leaf": 1}
    for _ in range(5000):
        deep = {"a": deep}
    wide = {f"f{at}": at for at in range(100_000)}
    demo = job().worker(1, pod={"priority": 3, "odd": deep, "wide": wide}).build()
    found = environment_of(demo, (), KEY)
    assert found["worker.priority"] == "3"
    assert len(found) == 256


@pytest.mark.parametrize(
    "line",
    [
        "connecting to postgres://me:planted@db:5432/x",
        "cloning https://planted@git.example/x",
        "GET https://store.example/data?sv=1&sig=planted HTTP/1.1",
        "Authorization: Bearer planted.planted",
        "export API_KEY=planted",
        "+ train.py --hf-token planted --lr 0.1",
        '{"password": "planted", "lr": 1}',
        "curl -H 'Cookie: planted'",
        f"identity {JWT}",
        "using hf_plantedplantedplanted",
    ],
)
def test_credentials_with_a_recognizable_form_are_redacted_from_logs(line):
    shown = redact(f"step 3 loss 0.5\n{line}\nlast line")
    assert "planted" not in shown
    assert JWT not in shown
    assert shown.startswith("step 3 loss 0.5\n")
    assert shown.endswith("\nlast line")


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'planted'",
        "max_tokens 2048, tokenizer gpt2, keys 3",
        "train.py --max-tokens 2048 --tokenizer gpt2 --key-dim=64",
        'File "train.py", line 3, in planted',
        "loss: 0.5 step: 3 https://paddlepaddle.org.cn/planted",
    ],
)
def test_ordinary_log_lines_are_kept(line):
    assert redact(line) == line


def test_the_logs_in_a_record_are_redacted():
    log = "PASSWORD=" + "planted" * 20
    given = snapshot(job().worker(1000)).pods_running()
    for index in range(1000):
        given.failed("worker", index, message=log)
    built = given.build()
    ranks = [compose.rank_end(each) for each in compose.ended_ranks(built.job, built.pods)]
    record = compose.attempt_record(built.job, built.job.status, NOW, ranks)
    assert len(record.ranks) == 1000
    assert {each.text for each in record.ranks} == {"PASSWORD=(redacted)"}
