"""Counts the blocks of the documentation that a run of the tests has run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from docs.blocks import ENGLISH, RUN_ELSEWHERE, Block, Command, blocks, play

COUNT = "blocks of the documentation"
Play = Callable[[list[Block], Callable[[Command], None]], None]


@pytest.fixture
def playing(record_property: Callable[[str, object], None]) -> Play:
    """Run blocks, and count them."""

    def run(chosen: list[Block], each: Callable[[Command], None]) -> None:
        play(chosen, each)
        record_property(COUNT, sum(bool(block.commands()) for block in chosen))

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many of how many were run."""
    passed = terminalreporter.stats.get("passed", ())
    counts = [value for report in passed for name, value in report.user_properties if name == COUNT]
    if counts:
        known = [block for page in ENGLISH for block in blocks(page, "bash", "console")]
        runnable = [block for block in known if block.commands()]
        elsewhere = sum(block.page in RUN_ELSEWHERE for block in runnable)
        terminalreporter.write_line(
            f"documentation: {sum(counts)} of {len(runnable) - elsewhere} blocks of commands run here, "
            f"{elsewhere} by {' and '.join(RUN_ELSEWHERE.values())}; "
            f"{len(known) - len(runnable)} are listed with the reason why not"
        )
