from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation import FieldError, validate
from paddlejob.testing.build import job, world
from tests.api.bad_jobs import BAD_JOBS, PADDLE, BadJob
from tests.api.bad_pods import BAD_PODS, env, from_status, template
from tests.api.good_jobs import GOOD_JOBS

JUNK: list[Any] = [None, 0, -1, 3.5, True, "", "x", [], [None], [0], ["x"], {}, {"name": 0}, [{}], [[{}]]]


@pytest.mark.parametrize("bad", [*BAD_JOBS, *BAD_PODS], ids=lambda bad: bad.case)
def test_refuses(bad: BadJob) -> None:
    found = {error.field: error.message for error in validate(bad.job.build())}
    assert bad.words in found.get(bad.field, f"nothing, but {found}")


@pytest.mark.parametrize("bad", [*BAD_JOBS, *BAD_PODS], ids=lambda bad: bad.case)
def test_reports_one_mistake_once(bad: BadJob) -> None:
    errors = validate(bad.job.build())
    also = ["spec.heter"] if bad.case == "heter without workers and servers" else []
    assert [error.field for error in errors] == [bad.field, *also]


@pytest.mark.parametrize("good", GOOD_JOBS.values(), ids=GOOD_JOBS)
def test_accepts(good: Any) -> None:
    assert validate(good.build()) == ()


def test_tells_all_mistakes_in_the_order_of_the_file() -> None:
    errors = validate(job("a.b").worker(0).ps(-1).spec(intranet="x").build())
    assert [error.field for error in errors] == [
        "metadata.name",
        "spec.intranet",
        "spec.ps.replicas",
        "spec.worker.replicas",
    ]


def test_an_error_reads_as_a_sentence() -> None:
    (error,) = validate(job().worker(0).build())
    assert str(error) == "spec.worker.replicas is 0; write a number from 1 to 5000"


def test_a_nameless_job_is_told_to_take_a_name() -> None:
    assert validate(job("").worker().build()) == (FieldError("metadata.name", "is missing; name the job"),)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        pytest.param(
            "Expected `int`, got `str` - at `$.spec.worker.replicas`",
            "spec.worker.replicas cannot be read: Expected `int`, got `str`; correct the value",
            id="the decoder's path becomes the field",
        ),
        pytest.param("not JSON", "spec cannot be read: not JSON; correct it", id="other reasons are quoted"),
    ],
)
def test_an_undecodable_job_has_one_error(reason: str, sentence: str) -> None:
    undecodable = PaddleJob(metadata=job().build().metadata, undecodable=reason)
    assert [str(error) for error in validate(undecodable)] == [sentence]


def test_long_values_are_shortened() -> None:
    (error,) = validate(job().worker().spec(intranet="x" * 500).build())
    assert len(str(error)) < 200


def test_templates_of_any_shape_are_judged_and_the_good_ones_become_pods() -> None:
    randomness = random.Random(7)
    verdicts = Counter(_is_refused(_mutated_template(randomness), randomness) for _ in range(3000))
    assert min(verdicts[True], verdicts[False]) > 300


def _is_refused(shape: dict[str, Any], randomness: random.Random) -> bool:
    candidate = template(shape).spec(intranet=randomness.choice(["PodIP", "Service", "Host"]))
    errors = validate(candidate.build())
    assert all(error.field.startswith("spec.worker.template") for error in errors)
    if not errors:
        world(candidate).pods()
    return bool(errors)


def _mutated_template(randomness: random.Random) -> dict[str, Any]:
    return {key: _mutated(child, randomness) for key, child in _rich_template().items()}


def _rich_template() -> dict[str, Any]:
    container = {
        **PADDLE,
        "env": [*env("A"), *env("POD_IP", **from_status("status.podIP"))],
        "envFrom": [{"configMapRef": {"name": "a"}}],
        "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {}, "claims": [{"name": "c"}]},
    }
    return {
        "metadata": {"labels": {"a": "b"}, "annotations": {}, "finalizers": []},
        "spec": {"restartPolicy": "Never", "containers": [container, {"name": "b", "image": "b"}]},
    }


def _mutated(value: Any, randomness: random.Random) -> Any:
    """Replace parts of a value by junk, each with a small chance."""
    if randomness.random() < 0.02:
        return randomness.choice(JUNK)
    if isinstance(value, dict):
        return {
            key: _mutated(child, randomness) for key, child in value.items() if randomness.random() > 0.01
        }
    if isinstance(value, list):
        return [_mutated(child, randomness) for child in value]
    return value
