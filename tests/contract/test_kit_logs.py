"""The logs in tests/training/logs have the form in which the source of each kit prints its lines.

PaddleFormers is not here: its log was recorded. Nor is PaddleClas: its wheel cannot train.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import wheels

LOGS = Path(__file__).parents[1] / "training" / "logs"
FORMS = [
    ("paddledetection", "paddledet==2.6.0", "ppdet/engine/callbacks.py", "Epoch: ["),
    ("paddledetection", "paddledet==2.6.0", "ppdet/engine/callbacks.py", "Eval iter: "),
    ("paddleocr", "paddleocr==2.10.0", "paddleocr/tools/program.py", "epoch: ["),
    ("paddleocr", "paddleocr==2.10.0", "paddleocr/tools/program.py", "cur metric, "),
    ("paddleseg", "paddleseg==2.8.0", "paddleseg/core/train.py", "[TRAIN] epoch: "),
    ("paddlenlp", "paddlenlp==2.8.1", "paddlenlp/trainer/trainer.py", "  Num Epochs = "),
    ("paddlenlp", "paddlenlp==2.8.1", "paddlenlp/trainer/trainer.py", "  Total optimization steps = "),
    ("paddlenlp", "paddlenlp==2.8.1", "paddlenlp/trainer/trainer_callback.py", "TrainProcess"),
    ("paddlenlp", "paddlenlp==2.8.1", "paddlenlp/trainer/trainer_callback.py", "PredictProcess"),
]


def printed_forms(source: str) -> Iterator[str]:
    """Yield the texts in a module, with {} for the values in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.Call)) and (text := text_of(node)):
            yield text


def text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(comma)), attr="join"), args=[parts]):
            return comma.join(map(text_of, parts.elts)) if isinstance(parts, ast.List) else ""
    return ""


def pattern_of(form: str) -> str:
    return ".*".join(map(re.escape, re.split(r"\{[^{}]*\}", form)))


@pytest.mark.paddle
@pytest.mark.parametrize(("log", "requirement", "file", "start"), FORMS)
def test_lines_have_the_form_of_the_source(log, requirement, file, start):
    with wheels.opened(requirement) as wheel:
        forms = {form for form in printed_forms(wheel.read(file).decode()) if form.startswith(start)}
    lines = [line for line in (LOGS / f"{log}.txt").read_text().splitlines() if start in line]
    assert lines
    # The whole form, where its beginning is a text of its own.
    form = max(forms, key=len)
    assert [line for line in lines if not re.search(pattern_of(form), line)] == []


def test_the_forms_of_a_source_are_found():
    source = """
width = ":3d"
logger.info(' '.join(['Epoch: [{}]', '[{' + width + '}/{}]', 'eta: {eta}']).format(1, 2, 3, eta=4))
logger.info(f"Num Epochs = {epochs:,}")
"""
    assert {"Epoch: [{}] [{}/{}] eta: {eta}", "Num Epochs = {}"} <= {*printed_forms(source)}
    assert re.fullmatch(pattern_of("Epoch: [{}] [{}/{}] eta: {eta}"), "Epoch: [0] [ 50/141] eta: 0:01")
    assert not re.search(pattern_of("iter: {}/{}"), "iter: 50")
