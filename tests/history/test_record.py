"""The record of a job: its bounds, whatever a job prints."""

from __future__ import annotations

import base64
import gzip
import itertools
import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectMeta
from paddlejob.api.v1 import Failure, Phase, Recovery, RecoveryKind
from paddlejob.history import compose
from paddlejob.history.record import (
    MAX_ATTEMPTS,
    MAX_BYTES,
    MAX_PLAIN_BYTES,
    MAX_POINTS,
    MAX_SUMMARY_LENGTH,
    AttemptRecord,
    PhaseEntry,
    Point,
    RankEnd,
    Record,
    Summary,
    bound_record,
    manifest,
    outline_of_record,
    pack,
    summary_of_object,
    thin_curve,
    unpack,
)
from simkube.build import job, snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("demo", "default", "0123456789")
DEMO = Summary(*KEY, result="Failed")


def noise(length: int, seed: int) -> str:
    """A text that does not compress."""
    return base64.b85encode(random.Random(seed).randbytes(length)).decode()[:length]


def attempt(number: int, ranks: int, length: int) -> AttemptRecord:
    ends = tuple(RankEnd(f"worker-{at}", "failed", 1, text=noise(length, at)) for at in range(ranks))
    return AttemptRecord(number, "Failed", message=noise(1000, number), ranks=ends)


@pytest.mark.parametrize(
    ("attempts", "ranks", "length"),
    [(1, 1, 10), (1, 1000, 180), (64, 8, 8192), (200, 3, 100), (1, 1, 500_000)],
)
def test_a_packed_record_is_never_too_large_and_keeps_the_first_failed_rank(attempts, ranks, length):
    full = Record(
        DEMO,
        attempts=tuple(attempt(number, ranks, length) for number in range(attempts)),
        timeline=tuple(PhaseEntry(NOW, "Running", message=noise(300, at)) for at in range(400)),
        curve=tuple(Point(at, 1, at, "0.5") for at in range(3000)),
        environment={noise(100, at): noise(200, at) for at in range(256)},
    )
    packed = pack(full)
    read = unpack(packed)
    assert len(packed) <= MAX_BYTES
    assert read is not None
    assert read.summary == DEMO
    assert len(read.attempts) <= MAX_ATTEMPTS
    assert read.attempts[-1].attempt == attempts - 1
    assert read.attempts[-1].ranks[0].rank == "worker-0"
    assert read.attempts[-1].ranks[0].text


def test_a_thousand_ranks_with_ordinary_logs_are_all_kept():
    failed = snapshot(job().worker(1000)).pods_running()
    text = "\n".join(f"[Train][Epoch 1/20][Iter: {step}/500] loss: 0.{step}" for step in range(200))
    for index in range(1000):
        failed.failed("worker", index, code=1, message=f"rank {index}\n{text}")
    given = failed.build()
    members = compose.ended_ranks(given.job, given.pods)
    ranks = [compose.rank_end(member) for member in members]
    record = Record(DEMO, attempts=(compose.attempt_record(given.job, given.job.status, NOW, ranks),))
    packed = pack(record)
    read = unpack(packed)
    assert len(packed) <= MAX_BYTES
    assert read is not None
    assert [each.rank for each in read.attempts[0].ranks] == [f"worker-{index}" for index in range(1000)]
    assert all(each.text.endswith("loss: 0.199") for each in read.attempts[0].ranks)


def test_a_record_without_attempts_is_bounded_too():
    environment = {noise(200, at): noise(200, at) for at in range(4000)}
    assert unpack(pack(Record(DEMO, environment=environment))) == Record(DEMO)


def test_the_last_attempt_keeps_its_ranks_and_earlier_ones_the_first_failed_rank():
    ends = tuple(RankEnd(f"worker-{index}", "failed", 1, text=f"last words {index}") for index in range(1000))
    attempts = tuple(AttemptRecord(number, "Restarting", ranks=ends) for number in range(30))
    read = unpack(pack(Record(DEMO, attempts=attempts)))
    assert read is not None
    *earlier, last = read.attempts
    assert last == attempts[-1]
    assert len(earlier) == 29
    for each in earlier:
        assert each.ranks[0] == ends[0]
        assert len(each.ranks) + each.more_ranks == 1000


def test_ranks_beyond_the_limit_are_counted():
    ranks = [RankEnd(f"worker-{index}") for index in range(compose.MAX_RANKS + 7)]
    demo = job().worker(1).build()
    ended = compose.attempt_record(demo, demo.status, NOW, ranks)
    assert (len(ended.ranks), ended.more_ranks) == (compose.MAX_RANKS, 7)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"not gzip",
        gzip.compress(b"{}"),
        gzip.compress(b"[" * 100_000),
        pack(Record(DEMO))[:-9],
        gzip.compress(b" " * (MAX_PLAIN_BYTES + 1)),
    ],
    ids=["empty", "not gzip", "another object", "deep", "cut", "bomb"],
)
def test_an_invalid_record_is_not_read(packed):
    assert unpack(packed) is None


def test_the_first_and_the_newest_attempts_stay():
    kept = bound_record(Record(DEMO, attempts=tuple(AttemptRecord(number) for number in range(100))))
    assert [each.attempt for each in kept.attempts] == [0, *range(37, 100)]
    assert kept.more_attempts == 36
    again = bound_record(msgspec.structs.replace(kept, attempts=(*kept.attempts, AttemptRecord(100))))
    assert again.more_attempts == 37


@pytest.mark.parametrize("count", [0, 1, MAX_POINTS, MAX_POINTS + 1, 10 * MAX_POINTS + 3])
@pytest.mark.parametrize("per_second", [1, 1000])
def test_a_curve_is_thinned_out_evenly_and_keeps_its_ends(count, per_second):
    points = tuple(Point(at // per_second, step=at) for at in range(count))
    kept = thin_curve(points, MAX_POINTS)
    assert len(kept) == min(count, MAX_POINTS)
    assert (kept[:1], kept[-1:]) == (points[:1], points[-1:])
    gaps = [later.step - sooner.step for sooner, later in itertools.pairwise(kept)]
    assert max(gaps, default=0) <= 4 * max(1, count // MAX_POINTS)


def test_the_curve_of_a_job_that_trains_for_days_shows_all_of_them():
    curve: tuple[Point, ...] = ()
    end = 5 * 86400
    for saved in range(0, end, 600):
        curve = thin_curve((*curve, *(Point(time) for time in range(saved, saved + 600, 15))), MAX_POINTS)
    gaps = [later.time - sooner.time for sooner, later in itertools.pairwise(curve)]
    assert (curve[0].time, curve[-1].time) == (0, end - 15)
    assert max(gaps) <= 3 * end / MAX_POINTS


def test_a_configmap_that_only_looks_like_a_record_is_not_one():
    made = manifest(Record(DEMO))["metadata"]
    metadata = msgspec.convert(made, ObjectMeta)
    assert summary_of_object(metadata) == DEMO
    assert summary_of_object(msgspec.structs.replace(metadata, name="other")) is None
    assert summary_of_object(msgspec.structs.replace(metadata, namespace="other")) is None
    good = made["annotations"][names.ANNOTATION_SUMMARY]
    naive = good.replace("{", '{"ended": "2024-01-01T00:00:00",', 1)
    deep = good.replace("{", '{"deep": ' + "[" * 100_000 + "]" * 100_000 + ",", 1)
    long = good.replace("{", '{"message": "' + "x" * 2000 + '",', 1)
    padded = good.replace("{", "{" + " " * MAX_SUMMARY_LENGTH, 1)
    uid = good.replace(DEMO.uid, DEMO.uid + "x" * 64)
    for text in ("", "{}", "[", '{"name": 1}', naive, deep, long, padded, uid):
        broken = {names.ANNOTATION_SUMMARY: text}
        assert summary_of_object(msgspec.structs.replace(metadata, annotations=broken)) is None


def test_the_operator_keeps_no_text_of_a_record():
    failure = Failure(message="x" * 1000)
    ended = msgspec.structs.replace(DEMO, reason="PodFailed", message="x" * 1000, failure=failure)
    unended = msgspec.structs.replace(ended, result="Running")
    for summary, kept in ((ended, DEMO), (unended, Summary(*KEY, result="Running", failure=failure))):
        encoded = msgspec.Raw(msgspec.json.encode(manifest(Record(summary))))
        assert outline_of_record(encoded) == kept


@pytest.mark.parametrize(
    "forged",
    [
        Record(DEMO, curve=(Point(10**18),)),
        Record(DEMO, curve=(Point(-(10**18)),)),
        Record(DEMO, attempts=(AttemptRecord(began=datetime.min.replace(tzinfo=UTC)),)),
        Record(DEMO, timeline=(PhaseEntry(datetime.max.replace(tzinfo=UTC), "Running"),)),
        Record(DEMO, attempts=(AttemptRecord(failure=Failure(time=datetime.min.replace(tzinfo=UTC))),)),
    ],
)
def test_a_record_with_impossible_times_is_not_read(forged):
    assert unpack(pack(Record(DEMO))) is not None
    assert unpack(pack(forged)) is None


@pytest.mark.parametrize("year", [1, 9999])
def test_a_summary_with_an_impossible_time_is_not_read(year):
    forged = msgspec.structs.replace(DEMO, ended=datetime(year, 1, 1, tzinfo=UTC))
    assert summary_of_object(msgspec.convert(manifest(Record(forged))["metadata"], ObjectMeta)) is None


def test_an_unrecorded_attempt_is_reconstructed_from_the_status():
    failure = Failure(attempt=3, pod="demo-worker-1", message="worker-1 exited with code 137")
    demo = job().worker(2).status(phase="Restarting", attempt=4).build()
    status = msgspec.structs.replace(demo.status, last_failure=failure, attempt_time=NOW)
    made_up = compose.reconstruct_attempt(msgspec.structs.replace(demo, status=status))
    assert (made_up.attempt, made_up.failure, made_up.ended) == (3, failure, NOW)
    deleted = compose.reconstruct_attempt(demo, deleted_at=NOW + timedelta(hours=1))
    assert (deleted.attempt, deleted.result, deleted.message) == (
        4,
        "Deleted",
        "deleted while it was Restarting",
    )
    terminating = job().status(phase="Terminating").build()
    assert compose.summary_of(terminating, deleted_at=NOW).message == "deleted"


@pytest.mark.parametrize(("attempt", "is_kept"), [(4, True), (3, False)])
def test_an_attempt_keeps_the_restart_that_began_it(attempt, is_kept):
    ledger = Recovery(attempt, RecoveryKind.MIXED, detect_seconds=0.5, total_seconds=6.2)
    demo = job().worker(2).status(phase="Running", attempt=4).build()
    demo = msgspec.structs.replace(demo, status=msgspec.structs.replace(demo.status, last_recovery=ledger))
    after = msgspec.structs.replace(demo.status, phase=Phase.RESTARTING, attempt=5)
    ended = compose.attempt_record(demo, after, NOW)
    assert ended.recovery == (ledger if is_kept else None)
    assert compose.reconstruct_attempt(demo, deleted_at=NOW).recovery == ended.recovery
    assert unpack(pack(Record(DEMO, attempts=(ended,)))).attempts == (ended,)
