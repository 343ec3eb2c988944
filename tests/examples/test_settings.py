"""What one can set from the environment, and what a wrong value gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.wide_and_deep import train

PROGRAM = Path(train.__file__)


def test_without_any_variable_the_data_is_beside_the_program_and_nothing_is_saved():
    settings = train.Settings.from_environment({})
    assert settings.data_dir == PROGRAM.parent / "data"
    assert (settings.checkpoint_dir, settings.model_dir) == (None, None)
    assert (settings.epochs, settings.batch_size, settings.data_sharded) == (2, 256, False)


def test_variables_are_read():
    settings = train.Settings.from_environment({"DATA_DIR": "/d", "CHECKPOINT_DIR": "/c", "MODEL_DIR": "/m"})
    assert (settings.data_dir, settings.checkpoint_dir) == (Path("/d"), Path("/c"))
    assert settings.model_dir == Path("/m")
    assert train.Settings.from_environment({"EPOCHS": "7"}).epochs == 7


@pytest.mark.parametrize("text", ["many", "0", "-1", "nan", "inf"])
def test_a_wrong_number_names_the_variable_and_the_value(text):
    with pytest.raises(SystemExit, match=f"EPOCHS is '{text}', it has to be a number above 0"):
        train.Settings.from_environment({"EPOCHS": text})


def test_missing_data_names_the_way_to_get_it(tmp_path):
    environment = {**os.environ, "DATA_DIR": str(tmp_path)}
    outcome = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1
    assert (
        outcome.stderr
        == f"train.py: DATA_DIR {tmp_path} has no manifest.json; run prepare_data.py --out {tmp_path}\n"
    )
