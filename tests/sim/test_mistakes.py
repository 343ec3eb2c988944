"""The mistakes of the simulation are mistakes, and can be corrected."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation.job import validate
from sim import mistakes
from simkube.apiserver.rules.patch import merge
from simkube.build import job

RIGHT = job().ps(1).worker(2).spec(backoffLimit=1)


@pytest.mark.parametrize("wrong", mistakes.WRONG, ids=str)
def test_it_is_one_until_it_is_corrected(wrong):
    spoilt = merge(RIGHT.manifest["spec"], wrong)
    assert mistakes.is_wrong(spoilt)
    try:
        read = msgspec.convert({**RIGHT.manifest, "spec": spoilt}, PaddleJob)
    except msgspec.ValidationError:
        read = None
    assert read is None or validate(read)
    corrected = merge(spoilt, mistakes.reverse(wrong, RIGHT.manifest["spec"]))
    assert corrected == RIGHT.manifest["spec"]
    assert not mistakes.is_wrong(corrected)
