from __future__ import annotations

from e2e.images import WIDE_AND_DEEP
from e2e.jobs import Space, collective, templates

CRASH = (
    'test "$PADDLE_TRAINER_ID" = 0 || { echo "line 7 of the data is broken" >&2; exit 3; }; exec sleep 600'
)
HOG = "print('taking', flush=True); print(len(bytearray(400 * 2**20)))"


def test_a_worker_that_crashes_fails_the_job_and_is_quoted(space: Space) -> None:
    job = space.submit(collective("crash", WIDE_AND_DEEP, ["bash", "-c", CRASH], replicas=2))
    status = job.await_phase("Failed")
    assert status["reason"] == "PodFailed"
    assert status["message"] == "worker-1 exited with code 3: line 7 of the data is broken"


def test_a_worker_without_enough_memory_is_restarted_then_given_up(space: Space) -> None:
    body = collective("hungry", WIDE_AND_DEEP, ["python3", "-c", HOG], backoffLimit=1)
    body["spec"]["restartPolicy"] = {"delaySeconds": 1}
    for template in templates(body):
        template["containers"][0]["resources"] = {"limits": {"memory": "100Mi"}}
    status = space.submit(body).await_phase("Failed", within_seconds=90)
    assert status["reason"] == "BackoffLimitExceeded"
    assert "worker-0 exited with code 137 (OOMKilled)" in status["message"]
    assert status["restarts"] == 1
