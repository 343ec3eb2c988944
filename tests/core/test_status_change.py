"""Every field of a status can be changed, with the type that mypy checks."""

from __future__ import annotations

from typing import get_type_hints

import msgspec
import pytest

from paddlejob.api.status_change import StatusFields, change_status
from paddlejob.api.v1 import PaddleJobStatus, Phase


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
