"""Every field of a spec is changed: the job comes to the end that the spec asks for."""

from __future__ import annotations

import pytest

from sim.field_walk import FIELDS, check, fields
from sim.simulation import SEEDS

pytestmark = pytest.mark.slow


def test_every_field_is_there():
    assert set(FIELDS) == {field for field in fields() if field not in ("ps.template", "heter.template")}


@pytest.mark.parametrize("field", FIELDS)
def test_changes_of(field):
    assert check(field, everything=SEEDS > 300) > 0
