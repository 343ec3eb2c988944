"""One test for each rule of the watch."""

from __future__ import annotations

import pytest

from paddlejob.kube.watch import (
    Advance,
    Apply,
    Begin,
    Broken,
    Effect,
    Empty,
    Eof,
    FetchPage,
    HttpError,
    Idle,
    Input,
    InStreamError,
    Line,
    Listing,
    OpenStream,
    Page,
    Ready,
    Remove,
    Replace,
    Stage,
    State,
    Streaming,
    Unstage,
    Wait,
    WaitOver,
    Warn,
    Watching,
    step,
)


def added(payload: str = "a", version: str = "5") -> Line:
    return Line("ADDED", version, payload)


def bookmark(version: str, *, ends_list: bool = False) -> Line:
    return Line("BOOKMARK", version, initial_events_end=ends_list)


def replay(state: State, *inputs: Input) -> tuple[State, list[Effect]]:
    collected: list[Effect] = []
    for received in inputs:
        state, effects = step(state, received)
        collected += effects
    return state, collected


def wait_in(effects: tuple[Effect, ...]) -> Wait:
    assert isinstance(effects[-1], Wait)
    return effects[-1]


def warning_in(effects: tuple[Effect, ...]) -> str:
    return next(effect.message for effect in effects if isinstance(effect, Warn))


WATCHING = Watching(resource_version="7")


def test_a_watch_starts_with_a_streamed_list():
    assert step(Empty(), WaitOver()) == (Streaming(), (Begin(), OpenStream()))


def test_nothing_reaches_the_cache_before_the_streamed_list_is_complete():
    _, effects = replay(Streaming(), added("a"), added("b"), Line("DELETED", "6", "a"))
    assert effects == [Stage("a"), Stage("b"), Unstage("a")]


def test_the_initial_events_end_bookmark_replaces_the_cache_and_continues_the_stream():
    state, effects = step(Streaming(), bookmark("9", ends_list=True))
    assert effects == (Replace("9"),)
    assert state == Watching(resource_version="9", received=True)


def test_a_version_is_not_resumed_from_before_the_streamed_list_is_complete():
    state, effects = replay(Streaming(), added(version="8"), Eof(60.0), WaitOver())
    assert isinstance(state, Streaming)
    assert effects[-2:] == [Begin(), OpenStream()]


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_refuses_streamed_lists_is_listed_page_by_page(code: int):
    state, effects = step(Streaming(), HttpError(code, "sendInitialEvents is forbidden"))
    assert effects == (Begin(), FetchPage())
    assert state == Listing(streams_left=0)


def test_a_server_that_overlooks_the_question_is_listed_page_by_page():
    state, effects = replay(Streaming(), added(), bookmark("9"))
    assert effects[-2:] == [Begin(), FetchPage()]
    assert isinstance(state, Listing)


@pytest.mark.parametrize(
    "ending",
    [Eof(60.0), Idle(130.0), Broken("reset", 2.0), InStreamError(500, open_seconds=2.0)],
    ids=["closed", "silent", "reset", "given-up-by-the-server"],
)
def test_after_two_incomplete_streamed_lists_pages_are_used(ending: Input):
    state, effects = replay(Streaming(), ending, WaitOver(), ending, WaitOver())
    assert isinstance(state, Listing)
    assert effects[-2:] == [Begin(), FetchPage()]


@pytest.mark.parametrize(
    "ending", [Broken("refused"), HttpError(500)], ids=["connection-refused", "server-error"]
)
def test_an_unreachable_server_does_not_disable_streamed_lists(ending: Input):
    state, _ = replay(Streaming(), *(ending, WaitOver()) * 5)
    assert isinstance(state, Streaming)


def test_a_refused_streamed_list_is_not_tried_again():
    listing, _ = step(Streaming(), HttpError(422))
    state, effects = replay(listing, Page(("a",), "5"), HttpError(410))
    assert isinstance(state, Listing)
    assert effects[-1] == FetchPage()


def test_pages_are_staged_and_replace_the_cache_atomically():
    first = Page(("a", "b"), "5", "more")
    state, effects = replay(Listing(streams_left=0), first, Page(("c",), "5"))
    staged = [Stage("a"), Stage("b"), FetchPage("more"), Stage("c")]
    assert effects == [*staged, Replace("5"), OpenStream("5")]
    assert state == Watching(streams_left=0, resource_version="5")


def test_the_watch_after_a_paged_list_starts_at_the_version_of_its_first_page():
    _, effects = replay(Listing(), Page((), "5", "more"), Page((), "8"))
    assert effects[-1] == OpenStream("5")


def test_pages_that_expire_between_two_requests_are_asked_for_in_one_piece():
    state, effects = replay(Listing(), Page(("a",), "5", "more"), HttpError(410))
    assert effects[-2:] == [Begin(), FetchPage(whole=True)]
    assert state == Listing(whole=True)


def test_a_whole_list_that_expires_too_starts_from_the_beginning():
    state, effects = step(Listing(whole=True, failures=1), HttpError(410))
    assert isinstance(state, Empty)
    assert wait_in(effects).min_seconds > 0


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        (Line("ADDED", "8", "a"), Apply("a", "8")),
        (Line("MODIFIED", "8", "a"), Apply("a", "8")),
        (Line("DELETED", "8", "a"), Remove("a", "8")),
        (bookmark("8"), Advance("8")),
    ],
    ids=["added", "modified", "deleted", "bookmark"],
)
def test_each_event_moves_the_version_to_resume_from(line: Line, effect: Effect):
    state, effects = step(WATCHING, line)
    assert effects == (effect,)
    assert state == Watching(resource_version="8", received=True, advanced=True)


def test_an_event_of_an_unknown_type_is_passed_over():
    assert step(WATCHING, Line("NOVEL", "")) == (Watching(resource_version="7", received=True), ())
    assert step(Streaming(), Line("NOVEL", "")) == (Streaming(), ())


def test_a_stream_that_ends_normally_is_resumed_immediately():
    state, effects = replay(WATCHING, added(version="8"), Eof(300.0))
    assert effects[-1] == OpenStream("8")
    assert isinstance(state, Watching)


def test_a_silent_stream_is_resumed_immediately():
    state, effects = replay(WATCHING, Idle(70.0))
    assert effects == [OpenStream("7")]
    assert isinstance(state, Watching)


def test_many_silent_streams_in_a_row_make_the_version_suspect():
    state, effects = replay(WATCHING, *[Idle(70.0)] * 8)
    assert effects == [OpenStream("7")] * 7 + [Begin(), OpenStream()]
    assert isinstance(state, Streaming)


def test_one_word_makes_up_for_silent_streams():
    state, _ = replay(WATCHING, *[Idle(70.0)] * 7, bookmark("7"), *[Idle(70.0)] * 7)
    assert isinstance(state, Watching)


@pytest.mark.parametrize("words", [(), (bookmark("7"),)], ids=["without-a-word", "with-a-bookmark"])
def test_very_short_streams_back_off(words: tuple[Line, ...]):
    state, effects = replay(WATCHING, *words, Eof(0.2))
    assert isinstance(state, Ready)
    assert wait_in(tuple(effects)) == Wait(0.5, 1.0)


def test_short_streams_with_news_are_resumed_immediately():
    ends = [(added(version=str(version)), Eof(0.2)) for version in range(8, 28)]
    state, effects = replay(WATCHING, *(received for pair in ends for received in pair))
    assert [each for each in effects if isinstance(each, (OpenStream, Wait))] == [
        OpenStream(str(version)) for version in range(8, 28)
    ]
    assert wait_in(step(state, Eof(0.2))[1]) == Wait(0.5, 1.0)


@pytest.mark.parametrize(
    "expired",
    [HttpError(410, "too old"), InStreamError(410, "too old", open_seconds=30.0)],
    ids=["as-http-status", "as-error-event"],
)
def test_an_expired_version_causes_an_immediate_list(expired: Input):
    state, effects = step(WATCHING, expired)
    assert effects == (Begin(), OpenStream())
    assert isinstance(state, Streaming)


def test_versions_that_expire_again_and_again_back_off():
    listing = Watching(streams_left=0, resource_version="7")
    state, effects = replay(listing, HttpError(410), Page((), "9"), HttpError(410))
    assert isinstance(state, Empty)
    assert wait_in(tuple(effects)).min_seconds > 0


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_busy_server_is_asked_again_from_the_same_version_after_a_backoff(code: int):
    state, effects = replay(WATCHING, HttpError(code), WaitOver())
    assert effects[-1] == OpenStream("7")
    assert state == Watching(failures=1, resource_version="7")


def test_the_backoff_doubles_up_to_its_bound():
    waits = [wait_in(step(Watching(failures=n), HttpError(500))[1]).max_seconds for n in range(8)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_the_backoff_is_spread_at_random():
    wait = wait_in(step(Watching(failures=3), HttpError(500))[1])
    assert wait == Wait(4.0, 8.0)


@pytest.mark.parametrize(
    "refusal",
    [HttpError(429, retry_after_seconds=20.0), InStreamError(429, "", 20.0)],
    ids=["as-http-status", "as-error-event"],
)
def test_retry_after_is_honoured(refusal: Input):
    assert wait_in(step(WATCHING, refusal)[1]) == Wait(20.0, 20.5)


def test_an_absurd_retry_after_is_bounded():
    wait = wait_in(step(WATCHING, HttpError(429, retry_after_seconds=86400.0))[1])
    assert wait.max_seconds < 301


@pytest.mark.parametrize(
    ("code", "advice"),
    [(401, "credentials"), (403, "grant list and watch"), (404, "install its definition")],
)
def test_a_refusal_that_a_person_must_lift_is_explained_and_retried_for_ever(code: int, advice: str):
    state: State = Streaming()
    for _ in range(100):
        state, effects = step(state, HttpError(code, "no"))
        assert advice in warning_in(effects)
        assert wait_in(effects).max_seconds <= 30
        state, _ = step(state, WaitOver())
    assert isinstance(state, Streaming)


def test_a_removed_resource_is_listed_again_when_it_returns():
    state, _ = step(WATCHING, HttpError(404))
    assert isinstance(state, Empty)


def test_a_refused_watch_keeps_its_version():
    state, _ = step(WATCHING, HttpError(403))
    assert state == Ready(failures=1, resource_version="7")


def test_a_broken_connection_backs_off_and_resumes():
    _, effects = replay(WATCHING, Broken("reset by peer", 40.0), WaitOver())
    assert Warn("reset by peer") in effects
    assert effects[-1] == OpenStream("7")


def test_a_stream_that_lived_makes_up_for_earlier_failures():
    struggling = Watching(failures=6, resource_version="7")
    assert wait_in(step(struggling, Broken("reset", 40.0))[1]).max_seconds == 1
    assert wait_in(step(struggling, Broken("reset", 0.1))[1]).max_seconds == 30


def test_a_page_that_fails_starts_the_list_again():
    state, effects = replay(Listing(streams_left=0), Page(("a",), "5", "more"), Broken("reset"), WaitOver())
    assert state == Listing(streams_left=0, failures=1)
    assert effects[-2:] == [Begin(), FetchPage()]


@pytest.mark.parametrize(
    ("state", "received"),
    [
        (Empty(), added()),
        (Ready(), Eof(1.0)),
        (Watching(), Page((), "1")),
        (Listing(), Idle(70.0)),
        (Streaming(), WaitOver()),
    ],
)
def test_an_impossible_input_is_a_programming_error(state: State, received: Input):
    with pytest.raises(ValueError, match="cannot receive"):
        step(state, received)
