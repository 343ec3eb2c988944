"""Volumes of pods as directories of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.jobs import config_map, container, job, role
from paddlejob.local.errors import InputError
from paddlejob.local.pod.capabilities import NONE
from paddlejob.local.pod.volumes import claims_of
from paddlejob.local.runner import Ending


def worker(script, volume, *, mount=None, replicas=1, **container_fields):
    mounts = [{"name": "v", "mountPath": "/volume", **(mount or {})}]
    one = container(script, volumeMounts=mounts, **container_fields)
    return role(replicas, containers=[one], volumes=[{"name": "v", **volume}])


async def test_an_empty_directory_is_the_pods_own_and_goes_with_it(finish):
    script = "ls /volume; echo x > /volume/file; ls /volume"
    run = await finish(job(worker=worker(script, {"emptyDir": {}}, replicas=2)))
    assert run.log("worker-0") == run.log("worker-1") == "file\n"
    assert not (run.directory.path / "volumes").exists()


async def test_memory_volumes_are_in_memory_and_leave_nothing_behind(finish):
    script = "stat -f -c %T /dev/shm; touch /dev/shm/x"
    mount = {"mountPath": "/dev/shm"}
    run = await finish(job(worker=worker(script, {"emptyDir": {"medium": "Memory"}}, mount=mount)))
    assert run.log("worker-0") == "tmpfs\n"
    assert not list(Path("/dev/shm").glob(f"paddlejob-{run.directory.name}/job-*"))


async def test_every_pod_has_its_own_shared_memory(finish):
    run = await finish(job(worker=role(2, "ls /dev/shm; touch /dev/shm/x; ls /dev/shm")))
    assert run.log("worker-0") == run.log("worker-1") == "x\n"


async def test_a_host_path_is_shared_by_all(finish, directory):
    script = "echo $HOSTNAME > /volume/$PADDLE_TRAINER_ID"
    await finish(job(worker=worker(script, {"hostPath": {"path": str(directory)}}, replicas=2)))
    assert sorted(path.read_text() for path in directory.iterdir()) == ["job-worker-0\n", "job-worker-1\n"]


async def test_a_host_path_can_be_made(finish, tmp_path):
    path = tmp_path / "made" / "deep"
    await finish(job(worker=worker("true", {"hostPath": {"path": str(path), "type": "DirectoryOrCreate"}})))
    assert path.is_dir()


async def test_a_volume_without_a_source_is_an_empty_directory(finish):
    run = await finish(job(worker=worker("ls -A /volume; echo empty", {"emptyDir": None})))
    assert run.log("worker-0") == "empty\n"


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


async def test_a_claim_is_a_directory_that_outlives_the_run(finish):
    await finish(job(worker=worker("echo kept > /volume/x", CLAIM)))
    run = await finish(job(worker=worker("cat /volume/x", CLAIM)))
    assert run.log("worker-0") == "kept\n"


async def test_the_files_of_a_claim_are_for_this_user_alone(finish, tmp_path):
    await finish(job(worker=worker("true", CLAIM)))
    made = [tmp_path / "volumes" / part for part in ("", "default", "default/data")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o700]


async def test_the_directory_of_a_claim_is_noted(finish, tmp_path, directory):
    where = f"claim data is {tmp_path}/volumes/default/data"
    way_out = "choose another with --volume data=DIR"
    first = await finish(job(worker=worker("touch /volume/x", CLAIM)))
    assert first.session.record.notes == (f"{where} (new and empty); {way_out}",)
    second = await finish(job(worker=worker("true", CLAIM)))
    assert second.session.record.notes == (f"{where} (with files of earlier runs); {way_out}",)
    chosen = await finish(job(worker=worker("true", CLAIM)), volumes=(f"data={directory}",))
    assert chosen.session.record.notes == ()


async def test_a_claim_can_be_any_directory(finish, directory):
    (directory / "x").write_text("mine\n")
    run = await finish(job(worker=worker("cat /volume/x", CLAIM)), volumes=(f"data={directory}",))
    assert run.log("worker-0") == "mine\n"


async def test_read_only_volume_mounts(finish, directory):
    script = "touch /volume/x || echo refused"
    run = await finish(
        job(worker=worker(script, {"hostPath": {"path": str(directory)}}, mount={"readOnly": True}))
    )
    assert run.log("worker-0").endswith("refused\n")


async def test_a_config_map_is_files(finish):
    volume = {"configMap": {"name": "files"}}
    run = await finish(
        job(worker=worker("cd /volume; cat a b", volume)), config_map("files", a="1\n", b="2\n")
    )
    assert run.log("worker-0") == "1\n2\n"


async def test_a_config_maps_keys_can_be_chosen_and_renamed(finish):
    volume = {"configMap": {"name": "files", "items": [{"key": "a", "path": "deep/x", "mode": 0o755}]}}
    script = "cd /volume; find . -type f; test -x deep/x && cat deep/x"
    run = await finish(job(worker=worker(script, volume)), config_map("files", a="1\n", b="2\n"))
    assert run.log("worker-0") == "./deep/x\n1\n"


async def test_one_key_can_be_mounted_as_a_file(finish):
    volume, mount = {"configMap": {"name": "files"}}, {"mountPath": "/etc/my.conf", "subPath": "a"}
    run = await finish(
        job(worker=worker("cat /etc/my.conf", volume, mount=mount)), config_map("files", a="1\n")
    )
    assert run.log("worker-0") == "1\n"


async def test_the_jobs_own_config_map_can_be_mounted(finish):
    volume = {"configMap": {"name": "job"}}
    run = await finish(job(worker=worker("cat /volume/PADDLE_TRAINERS_NUM", volume)))
    assert run.log("worker-0") == "1"


async def test_a_secret_is_files(finish):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "x\n"}}
    run = await finish(job(worker=worker("cat /volume/key", {"secret": {"secretName": "s"}})), secret)
    assert run.log("worker-0") == "x\n"


async def test_a_pod_can_read_about_itself(finish):
    items = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
    volume = {"projected": {"sources": [{"downwardAPI": {"items": items}}, {"configMap": {"name": "files"}}]}}
    run = await finish(job(worker=worker("cd /volume; cat name; ls", volume)), config_map("files", a="1"))
    assert run.log("worker-0") == "job-worker-0a\nname\n"


async def test_sub_path_expr_differs_between_pods(finish, directory):
    mount = {"subPathExpr": "$(PADDLE_TRAINER_ID)"}
    worker_ = worker(
        "echo $HOSTNAME > /volume/x", {"hostPath": {"path": str(directory)}}, mount=mount, replicas=2
    )
    await finish(job(worker=worker_))
    assert (directory / "1" / "x").read_text() == "job-worker-1\n"


REFUSED = {
    "nfs": (
        {"nfs": {"server": "10.0.0.1", "path": "/"}},
        {},
        "is nfs from 10.0.0.1, which only an administrator",
    ),
    "an unknown kind": ({"cephfs": {}}, {}, "volumes[0] is cephfs, which is not supported locally"),
    "a host path that does not exist": (
        {"hostPath": {"path": "/no/such"}},
        {},
        "is /no/such, which does not exist",
    ),
    "a volume that the pod lacks": (
        {"emptyDir": {}},
        {"name": "w"},
        "name is w, but the pod has no such volume",
    ),
    "a relative path": ({"emptyDir": {}}, {"mountPath": "x"}, "mountPath is x; write an absolute path"),
    "a file outside of the volume": (
        {"configMap": {"name": "job", "items": [{"key": "a", "path": "../../.bashrc"}]}},
        {},
        'volumes[0].configMap.items[0].path is "../../.bashrc"; write a path inside the volume',
    ),
    "an absolute file": (
        {"projected": {"sources": [{"downwardAPI": {"items": [{"path": "/etc/x", "fieldRef": {}}]}}]}},
        {},
        'volumes[0].projected.sources[0].downwardAPI.items[0].path is "/etc/x"',
    ),
    "a name that is a path": ({"name": "../v", "emptyDir": {}}, {}, 'volumes[0].name is "../v"'),
    "a claim that is a path": (
        {"persistentVolumeClaim": {"claimName": "../../other"}},
        {},
        'claimName is "../../other"; use lower-case',
    ),
    "a config map that is not in the file": (
        {"configMap": {"name": "c"}},
        {},
        "needs the ConfigMap c, which is not",
    ),
    "a secret that is not in the file": (
        {"secret": {"secretName": "s"}},
        {},
        "needs the Secret s, which is not",
    ),
}


@pytest.mark.parametrize(("volume", "mount", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_unsupported_volumes_are_refused_before_the_start(start, volume, mount, sentence):
    with pytest.raises(InputError) as refusal:
        await start(job(worker=worker("true", volume, mount=mount)))
    assert sentence in str(refusal.value)


async def test_a_sub_path_outside_the_volume_is_refused(finish):
    run = await finish(
        job(worker=worker("true", {"emptyDir": {}}, mount={"subPath": "../x"}), backoffLimit=0)
    )
    assert "write a path inside the volume" in run.status.message


async def test_a_link_does_not_lead_out_of_the_volume(finish, directory, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (directory / "link").symlink_to(outside)
    volume = {"hostPath": {"path": str(directory)}}
    run = await finish(
        job(worker=worker("touch /volume/x", volume, mount={"subPath": "link/made"}), backoffLimit=0)
    )
    assert "leaves the volume" in run.status.message
    assert not list(outside.iterdir())


BAD_CLAIMS = {"no directory": "data", "one that does not exist": "data=/no/such"}


@pytest.mark.parametrize("option", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
def test_bad_claims_are_refused(option, tmp_path):
    with pytest.raises(InputError, match=r"--volume data"):
        claims_of((option,), tmp_path)


class TestWithoutNamespaces:
    """A kernel that allows nothing."""

    async def test_a_host_path_at_its_own_path_needs_no_namespace(self, finish, directory):
        volume, mount = {"hostPath": {"path": str(directory)}}, {"mountPath": str(directory)}
        run = await finish(job(worker=worker(f"touch {directory}/x", volume, mount=mount)), allowed=NONE)
        assert await run.ended() is Ending.COMPLETED
        assert (directory / "x").exists()

    async def test_dev_shm_needs_no_namespace(self, finish):
        volume, mount = {"emptyDir": {"medium": "Memory"}}, {"mountPath": "/dev/shm"}
        run = await finish(job(worker=worker("test -d /dev/shm", volume, mount=mount)), allowed=NONE)
        assert await run.ended() is Ending.COMPLETED

    @pytest.mark.parametrize(
        "volume", [{"emptyDir": {}}, CLAIM, {"hostPath": {"path": "/tmp"}}], ids=json.dumps
    )
    async def test_other_volumes_need_a_namespace(self, start, volume):
        with pytest.raises(InputError, match=r"cannot be mounted at /volume.*sysctl"):
            await start(job(worker=worker("true", volume)), allowed=NONE)

    async def test_services_need_a_namespace(self, start):
        with pytest.raises(InputError, match=r"intranet is Service.*sysctl.*or write PodIP"):
            await start(job(intranet="Service"), allowed=NONE)

    async def test_a_job_runs_in_the_directory_of_its_file(self, finish, tmp_path):
        run = await finish(job(worker=role(2, "pwd")), allowed=NONE)
        assert run.log("worker-0") == f"{tmp_path}\n"

    async def test_an_image_is_copied_and_its_directory_is_where_the_copy_is(self, finish, directory):
        (directory / "Dockerfile").write_text('FROM x\nADD . /app\nWORKDIR /app\nCMD ["sh", "main"]\n')
        (directory / "main").write_text("echo made > made; ls\n")
        one = {"name": "main", "image": "i:v1"}
        run = await finish(job(worker=role(1, containers=[one])), images=(f"i:v1={directory}",), allowed=NONE)
        assert run.log("worker-0").split() == ["Dockerfile", "made", "main"]
        assert not (directory / "made").exists()


async def test_the_launcher_logs_into_the_directory_of_the_run(finish):
    script = 'mkdir -p "$PADDLE_LOG_DIR"; echo "rank $PADDLE_RANK" > "$PADDLE_LOG_DIR/workerlog.0"'
    run = await finish(job(worker=role(2, script)))
    logs = [run.directory.launcher_logs(f"job-worker-{index}") / "workerlog.0" for index in range(2)]
    assert [each.read_text() for each in logs] == ["rank 0\n", "rank 1\n"]
    assert run.directory.read_env("job-worker-1")["PADDLE_LOG_DIR"] == str(logs[1].parent)


async def test_a_volume_of_the_template_may_have_the_name_of_the_launchers(finish):
    mount = {"name": "paddlejob-logs", "mountPath": "/volume"}
    one = {**container("echo kept > /volume/file; cat /volume/file"), "volumeMounts": [mount]}
    volume = {"name": "paddlejob-logs", "emptyDir": {}}
    run = await finish(job(worker=role(1, containers=[one], volumes=[volume])))
    assert run.log("worker-0") == "kept\n"
