"""The commands of the documentation, as its readers find them.

A block of `bash` is run; of a block of `console` each command is run and its output compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "examples/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)
ENGLISH = tuple(page for page in PAGES if "zh-CN" not in page)
"""tests/cli/test_docs.py holds the blocks of the translations against these."""
LANGUAGES = ("bash", "console", "dockerfile", "python", "text", "yaml")

RUN_ELSEWHERE = {
    "docs/install.md": "tests/deploy/test_guide.py",
    "docs/local.md": "tests/local/test_guide.py",
}
"""Pages whose blocks another test runs, all of them."""
NOT_RUN = {
    "docker build": "needs Docker; tests/e2e/images.py builds the same with buildah",
    "docker push": "needs a registry",
    "make demo": "devcluster/fresh.py runs it in a bare Debian",
    '"$(python3 scripts/paddle_env.py 2.6.2)"': "devcluster/fresh.py runs it after `make demo`",
    "make test": "this is one of its tests",
    "sysctl -w": "changes the settings of the machine",
    "helm upgrade": "needs a release; tests/deploy/test_chart_install.py runs it",
    "kubectl -n paddle-system port-forward": "needs the dashboard's pod",
    "python3 examples/data_demo/lay_out.py": "needs the volume; tests/e2e/volumes.py lays it out on a node",
    "kubectl logs -f": "needs a node; tests/e2e/test_plain_job.py reads the logs of these Jobs",
    "kubectl pdj stack": "needs the processes of a container; tests/client/test_stacks.py prints theirs",
    "kubectl pdj -n team-a explain": "tests/client/explain/test_documents.py makes this very text",
    "paddlejob start --program 'paddle train'": "needs a Paddle from before Fleet; there is no wheel",
}
"""Commands that no test runs as they are written, by how they begin, and why."""


class Command(NamedTuple):
    """What somebody types, and what comes back."""

    text: str
    output: str | None
    """Nothing where the documentation shows none."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    def commands(self) -> list[Command]:
        """Return what is to be run; a script that sets variables as one command."""
        if self.language == "console":
            parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
            found = [Command(*part.split("\n", 1)) for part in parts]
        elif re.search(r"^(?:export |\w+=)", self.text, flags=re.MULTILINE):
            found = [Command(self.text, None)]
        else:
            lines = re.findall(r"(?:.*\\\n)*.*\n", self.text)
            found = [Command(re.sub(r"  +#.*", "", line).strip(), None) for line in lines]
        return [each for each in found if not each.text.startswith(tuple(NOT_RUN))]

    @property
    def is_for_a_cluster(self) -> bool:
        """Whether it needs an API server."""
        return "kubectl" in self.text


def blocks(page: str, *languages: str) -> list[Block]:
    """Return the blocks of a page in these languages."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL)
    return [
        Block(page, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))
        for indent, language, body in found
        if not languages or language in languages
    ]


VARIABLE = {
    r"\.\.\.": r"[\s\S]*?",
    r"\b\d+\.\d s\b": r"[\d.]+ s",
    r"\b(?:\d+[dhms])+\b": r"(?:\d+[dhms])+",
    r"\d{4}-\d\d-\d\d[T ][\d:]+Z": r"\d{4}-\d\d-\d\d[T ][\d:]+Z",
    r"\b\d\d:\d\d:\d\dZ": r"\d\d:\d\d:\d\dZ",
    r"/home/me[\w./-]*": r"/[\w./-]*",
    r"(?<=-)g679j\b": r"\w{5}",
    r" {2,}": r" +",
}
"""What differs from run to run: times, the reader's home, random names, the width of columns."""
_TOKEN = re.compile("|".join(f"({each})" for each in VARIABLE))


def matches(shown: str, printed: str) -> bool:
    """Return whether a command printed what the documentation shows; `...` stands for anything."""
    instead, pattern, end = tuple(VARIABLE.values()), "", 0
    for token in _TOKEN.finditer(shown := shown.strip()):
        pattern += re.escape(shown[end : token.start()]) + instead[(token.lastindex or 1) - 1]
        end = token.end()
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    return re.fullmatch(pattern + re.escape(shown[end:]), "\n".join(lines)) is not None


def play(blocks: list[Block], run: Callable[[Command], None]) -> None:
    """Run everything; whatever runs it says what is wrong."""
    for block in blocks:
        for command in block.commands():
            run(command)
