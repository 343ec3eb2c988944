"""The table of shared budgets names all of them, and the documents show it."""

from __future__ import annotations

import re

import pytest

from paddlejob.operator.limits.budgets import BUDGETS, Budget
from tests.support.simulated_cluster import ROOT

SOURCES = ROOT / "src"
SHARES = re.compile(r"^from paddlejob\.fair_share import|= WorkQueue\(|\bnamespace_share\(", re.MULTILINE)
"""Matches code that divides something between namespaces."""
MECHANISMS = {
    "paddlejob.kube.workqueue",
    "paddlejob.operator.limits.budgets",
    "paddlejob.operator.reports.book",
}
"""Modules that divide on behalf of others."""
PAGES = ["docs/install.md", "docs/install.zh-CN.md"]


def sharing_modules() -> set[str]:
    """Return the modules under src that divide something between namespaces."""
    files = [
        *(SOURCES / "paddlejob" / "kube").rglob("*.py"),
        *(SOURCES / "paddlejob" / "core").rglob("*.py"),
        *(SOURCES / "paddlejob" / "operator").rglob("*.py"),
    ]
    return {
        ".".join(file.relative_to(SOURCES).with_suffix("").parts)
        for file in files
        if SHARES.search(file.read_text())
    }


def test_every_module_that_shares_something_is_in_the_table():
    assert sharing_modules() - MECHANISMS == {budget.module for budget in BUDGETS}


def numbers(budget: Budget) -> str:
    return f"| {budget.size:,} | {budget.alone:,} |"


@pytest.mark.parametrize("page", PAGES)
def test_the_documents_show_the_table(page):
    text = (ROOT / page).read_text()
    rows = [line for line in text.splitlines() if re.fullmatch(r"\| [^|`]+ \| [\d,]+ \| [\d,]+ \|", line)]
    assert [row[row.index("|", 1) :] for row in rows] == [numbers(budget) for budget in BUDGETS]
    if page == PAGES[0]:
        assert rows == [f"| {budget.name} {numbers(budget)}" for budget in BUDGETS]
