"""Every field of a status can be changed, with the type that mypy checks."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run
from typing import get_type_hints

import msgspec
import pytest

from paddlejob.api.status_change import StatusFields, change_status
from paddlejob.api.v1 import PaddleJobStatus, Phase

ROOT = Path(__file__).parents[2]
MISTAKES = """\
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJobStatus

change_status(PaddleJobStatus(), retry_tiem=None)
change_status(PaddleJobStatus(), attempt="seven")
change_status(PaddleJobStatus(), attempt=7)
"""


def test_the_fields_have_the_names_and_types_of_the_status():
    types = get_type_hints(PaddleJobStatus)
    expected = {name: types[name] for name in PaddleJobStatus.__struct_fields__}
    assert get_type_hints(StatusFields) == expected


def test_only_the_given_fields_change():
    before = PaddleJobStatus(phase=Phase.RUNNING, attempt=3, restarts=1)
    after = change_status(before, attempt=4, suspect_nodes=("node-a",))
    assert after == msgspec.structs.replace(before, attempt=4, suspect_nodes=("node-a",))


def test_an_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="retry_tiem"):
        change_status(PaddleJobStatus(), retry_tiem=None)


@pytest.mark.slow
def test_mypy_rejects_a_misspelled_field_and_a_wrong_type(tmp_path: Path):
    module = tmp_path / "mistakes.py"
    module.write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", str(module)]
    checked = run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    first, second = (line for line in checked.stdout.splitlines() if ": error: " in line)
    assert ':4: error: Unexpected keyword argument "retry_tiem"' in first
    assert ':5: error: Argument "attempt" to "change_status" has incompatible type "str"' in second
