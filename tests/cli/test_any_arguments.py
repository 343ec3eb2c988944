"""Whatever arguments a command is given: it does its work or says one error, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paddlejob.cli.catalog import KUBECTL_VERBS as CLUSTER_VERBS
from paddlejob.cli.catalog import VERBS
from paddlejob.cli.kubectl import group
from paddlejob.cli.lazy_group import load
from paddlejob.cli.main import main
from tests.support.fuzz import TEXT, refusal

SERVING = {"operator", "dashboard", "ui", "docs", "start"}
"""They serve until they are stopped, or are for a pod: only their arguments are read here."""


def as_argument(text: str) -> str:
    """Return the text as a program is given it: bytes that are not UTF-8 are surrogates, none is zero."""
    return text.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


VALUES = TEXT.map(as_argument) | st.sampled_from(
    [
        *("demo", "@latest", "worker-0", "worker", "10", "10s", "1h", "99999999999999999999s", "1e9h", "-5m"),
        *(
            "a=b",
            "=",
            "a=",
            "yaml",
            "json",
            "jsonpath={.a",
            "jsonpath={",
            "jsonpath=[",
            "name",
            "wide",
            "all",
        ),
        *(
            "job.yaml",
            "-",
            "ps",
            "collective",
            "8080:80",
            "8080",
            ":80",
            "99999:1",
            "worker-0:/a",
            "./b",
            "a:b:c",
        ),
        *(
            "for=condition",
            "condition=Completed",
            "jsonpath={.status.phase}=Running",
            "lines=5",
            "2026-01-01",
        ),
        *("2026-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "data=/tmp", "claim=missing", "--", "-", "---"),
    ]
)


def flags_of(command: click.Command) -> list[str]:
    return [flag for each in command.params if isinstance(each, click.Option) for flag in each.opts]


@st.composite
def arguments(draw: st.DrawFn, command: click.Command) -> list[str]:
    """Draw flags of a command, most of them with a value, and words between them."""
    flags = [flag for flag in flags_of(command) if flag not in ("--apply", "--follow", "-f", "--watch", "-w")]
    drawn: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        flag = draw(st.sampled_from(flags)) if flags and draw(st.booleans()) else None
        value = draw(VALUES)
        joined = flag is not None and flag.startswith("--") and draw(st.booleans())
        drawn += [f"{flag}={value}"] if joined else [flag, value] if flag else [value]
    return drawn


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a job file that is not valid, so that nothing is run, and no cluster."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "job.yaml").write_text("apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nspec: 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.setenv("KUBECONFIG", str(folder / "missing"))
        yield folder


def check(program: click.Command, verb: str, given_arguments: list[str]) -> None:
    done = CliRunner().invoke(program, [verb, *given_arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 1, 2, 124, 130), done.output
    assert "Traceback" not in done.output
    assert "this is a bug" not in done.output, done.output
    if done.exit_code:
        assert done.stderr.strip(), f"{verb} {given_arguments} fails without a word"


def by_verb(table: dict[str, tuple[str, str]]) -> st.SearchStrategy[tuple[str, list[str]]]:
    verbs = st.sampled_from(sorted(set(table) - SERVING))
    return verbs.flatmap(lambda verb: st.tuples(st.just(verb), arguments(load(table[verb][0]))))


# One example is one command, of which there are some twenty in each program.
MORE = settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))


@MORE
@given(drawn=by_verb(CLUSTER_VERBS))
@example(drawn=("wait", ["demo", "--timeout=99999999999999999999s"]))
@example(drawn=("logs", ["demo", "--since=1e9h"]))
def test_any_arguments_of_kubectl_pdj(place: Path, drawn: tuple[str, list[str]]):
    check(group, *drawn)


@MORE
@given(drawn=by_verb(VERBS))
@example(drawn=("resume", ["--run-dir", "9" * 5000]))
@example(drawn=("run", ["job.yaml", "-e", "=x", "--volume", "="]))
def test_any_arguments_of_paddlejob(place: Path, drawn: tuple[str, list[str]]):
    check(main, *drawn)


@given(data=st.data())
def test_any_arguments_of_what_serves_are_read_or_refused(data: st.DataObject):
    verb = data.draw(st.sampled_from(sorted(SERVING)))
    command = load({**CLUSTER_VERBS, **VERBS}[verb][0])
    given_arguments = data.draw(arguments(command))
    refusal(
        lambda: command.make_context(verb, given_arguments),
        click.ClickException,
        click.exceptions.Exit,
        click.exceptions.Abort,
    )
