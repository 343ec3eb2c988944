from __future__ import annotations

from typing import Any

import pytest

from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation import FieldError, validate
from paddlejob.api.validation.errors import join
from simkube.build import job
from tests.api.bad_jobs import BAD_JOBS, BadJob
from tests.api.bad_pods import BAD_PODS
from tests.api.good_jobs import GOOD_JOBS


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


def test_all_errors_are_reported_in_the_order_of_the_file() -> None:
    errors = validate(job("a.b").worker(0).ps(-1).spec(intranet="x").build())
    assert [error.field for error in errors] == [
        "metadata.name",
        "spec.intranet",
        "spec.ps.replicas",
        "spec.worker.replicas",
    ]


def test_an_error_reads_like_one_of_the_api_server() -> None:
    (error,) = errors = validate(job().worker(0).build())
    assert str(error) == "spec.worker.replicas: Invalid value: 0: must be between 1 and 5000"
    assert join(errors) == str(error)


def test_several_errors_are_listed_as_the_api_server_lists_them() -> None:
    errors = validate(job().worker(0).spec(backoffLimit=-1).build())
    assert join(errors) == (
        "[spec.backoffLimit: Invalid value: -1: must be between 0 and 1000, "
        "spec.worker.replicas: Invalid value: 0: must be between 1 and 5000]"
    )


def test_a_job_without_a_name_is_rejected() -> None:
    expected = FieldError("metadata.name", "Required value: give the job a name")
    assert validate(job("").worker().build()) == (expected,)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        pytest.param(
            "Expected `int`, got `str` - at `$.spec.worker.replicas`",
            "spec.worker.replicas: Invalid value: cannot be decoded: Expected `int`, got `str`",
            id="the decoder's path becomes the field",
        ),
        pytest.param(
            "not JSON", "spec: Invalid value: cannot be decoded: not JSON", id="other reasons are quoted"
        ),
    ],
)
def test_an_undecodable_job_has_one_error(reason: str, sentence: str) -> None:
    undecodable = PaddleJob(metadata=job().build().metadata, undecodable=reason)
    assert [str(error) for error in validate(undecodable)] == [sentence]


def test_long_values_are_shortened() -> None:
    (error,) = validate(job().worker().spec(intranet="x" * 500).build())
    assert len(str(error)) < 200


@pytest.mark.parametrize("intranet", ["PodIP", "Host", "Service"])
def test_a_name_with_a_leading_digit_is_rejected_with_services(intranet: str) -> None:
    of = job("3d-net").worker(2).spec(intranet=intranet).build()
    assert bool(validate(of)) is (intranet == "Service")
    (error,) = validate(of, pods_have_ipv6=True)
    assert error.field == "metadata.name"
    assert "must begin with a letter" in error.message


def test_the_list_of_names_must_fit_on_an_ipv6_cluster_too() -> None:
    of = job("n" * 50).worker(5000).build()
    assert validate(of) == ()
    (error,) = validate(of, pods_have_ipv6=True)
    assert error.message.endswith("in one environment variable; shorten the job's name")


SCHEDULING = {
    "queue": ("q" * 254, "Too long: may not be more than 253 characters"),
    "priorityClass": ("p" * 10**5, "Too long: may not be more than 253 characters"),
    "minResources": ({f"r{number}": 1 for number in range(65)}, "Too many: 65: must have at most 64 items"),
}


@pytest.mark.parametrize("field", SCHEDULING)
def test_names_in_a_scheduling_policy_are_bounded(field: str) -> None:
    value, words = SCHEDULING[field]
    (error,) = validate(job().worker().spec(schedulingPolicy={field: value}).build())
    assert error.field == f"spec.schedulingPolicy.{field}"
    assert words in error.message
    assert len(str(error)) < 300


def test_lists_of_exit_codes_are_bounded() -> None:
    (error,) = validate(job().worker().spec(restartPolicy={"ignoredExitCodes": [7] * 100_000}).build())
    assert str(error) == (
        "spec.restartPolicy.ignoredExitCodes: Too many: 100000: must have at most 255 items"
    )


@pytest.mark.parametrize(
    "field", ["activeDeadlineSeconds", "startupDeadlineSeconds", "ttlSecondsAfterFinished"]
)
def test_times_are_bounded(field: str) -> None:
    assert validate(job().worker().spec(**{field: 2**31 - 1}).build()) == ()
    (error,) = validate(job().worker().spec(**{field: 2**62}).build())
    assert error.field == f"spec.{field}"
