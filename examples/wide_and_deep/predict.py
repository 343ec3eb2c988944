"""Predicts with a model that train.py saved: which people of the test data earn more than 50,000 dollars.

    python3 predict.py MODEL_DIR [--people 5]

Reads the first test file of DATA_DIR (default: data, beside this file), prints a line for some of its people,
and the AUC of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_minloglevel", "2")
os.environ.setdefault("FLAGS_enable_pir_api", "0")  # 3.0: as train.py saved it

import numpy as np
import paddle
import progress
from trained_model import NAME

BINS = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicts with a trained Wide & Deep model.")
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--people", type=int, default=5)
    arguments = parser.parse_args()
    if not (arguments.model / f"{NAME}.pdmodel").is_file():
        sys.exit(f"predict.py: {arguments.model} has no {NAME}.pdmodel; train with MODEL_DIR set")
    data = Path(os.environ.get("DATA_DIR") or Path(__file__).resolve().parent / "data")
    numbers, ids, labels = read(data)
    probabilities = predict(arguments.model, numbers, ids)
    for person, probability in enumerate(probabilities[: arguments.people]):
        truth = "more" if labels[person] else "not more"
        print(f"person {person}: more than 50,000 dollars: probability {probability:.3f}, in fact {truth}")
    print(f"auc {auc(probabilities, labels):.4f} of {len(labels)} people")


def read(data: Path) -> tuple[Any, Any, Any]:
    """The numbers, category ids and labels of the first test file, which is in Paddle's MultiSlot text."""
    name = next(iter(json.loads((data / "manifest.json").read_text())["test"]))
    rows = [line.split() for line in (data / name).read_text().splitlines()]
    count = int(rows[0][0])
    numbers = np.array([row[1 : 1 + count] for row in rows], "float32")
    ids = np.array([row[2 + count : -2] for row in rows], "int64")
    return numbers, ids, np.array([row[-1] for row in rows], "int64")


def predict(model: Path, numbers: Any, ids: Any) -> Any:
    """The probability for each person."""
    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    program, inputs, outputs = paddle.static.load_inference_model(str(model / NAME), executor)
    feed = dict(zip(inputs, (numbers, ids), strict=True))
    (probabilities,) = executor.run(program, feed=feed, fetch_list=outputs)
    return np.asarray(probabilities).reshape(-1)


def auc(probabilities: Any, labels: Any) -> float:
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    positive, negative = (np.bincount(bins[labels == wanted], minlength=BINS) for wanted in (1, 0))
    area: float = progress.area_under_curve(positive.tolist(), negative.tolist())
    return area


if __name__ == "__main__":
    main()
