"""The Wide & Deep network: a linear model that remembers, beside a small neural network that generalises.

Both read the same embedding table.  It is the only large part of such models (here 500 rows, in practice
billions), so it lives on the parameter servers, and a worker fetches just the rows of its batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import paddle
from paddle.static import nn

EMBEDDING_TABLE = "category_embedding"
EMBEDDING_SIZE = 8
HIDDEN_LAYERS = (64, 32)


class Network(NamedTuple):
    """The variables of the static graph that training needs to name."""

    inputs: list[Any]
    table_rows: Any
    loss: Any
    loss_sum: Any
    batches: Any
    positive_histogram: Any
    negative_histogram: Any


def build(numbers: int, categories: int, vocabulary: int) -> Network:
    """Adds the network to the default program; the inputs are in the order of prepare_data's slots."""
    dense = paddle.static.data("numbers", [None, numbers], "float32")
    ids = paddle.static.data("category_ids", [None, 1], "int64", lod_level=1)
    label = paddle.static.data("label", [None, 1], "int64")

    # The rows of the table that a batch needs come from the servers.
    rows = nn.sparse_embedding(input=ids, size=table_shape(vocabulary), param_attr=table_parameter())
    probability = predict(dense, rows, categories)

    loss = paddle.mean(paddle.nn.functional.log_loss(probability, paddle.cast(label, "float32"), 1e-7))
    loss_sum, batches = running_total("loss_sum", loss), running_total("batches", paddle.ones_like(loss))
    # paddle's auc operator counts the predictions in histograms, which train.py reads and adds up.
    *_, histograms = paddle.static.auc(paddle.concat([1 - probability, probability], axis=1), label)
    positive, negative = histograms[2:4]
    return Network([dense, ids, label], rows, loss, loss_sum, batches, positive, negative)


def build_for_prediction(numbers: int, categories: int, vocabulary: int) -> tuple[list[Any], Any]:
    """Adds the same network to the default program, with the table in it; returns inputs and probability."""
    dense = paddle.static.data("numbers", [None, numbers], "float32")
    ids = paddle.static.data("category_ids", [None, categories], "int64")
    rows = nn.embedding(ids, table_shape(vocabulary), param_attr=table_parameter())
    return [dense, ids], predict(dense, paddle.reshape(rows, [-1, 1 + EMBEDDING_SIZE]), categories)


def predict(dense: Any, rows: Any, categories: int) -> Any:
    """The probability for each person, from their numbers and the rows of the table for their categories."""
    wide_weight, embedding = paddle.split(rows, [1, EMBEDDING_SIZE], axis=1)
    wide_weights = paddle.reshape(wide_weight, [-1, categories])
    wide = nn.fc(dense, 1, name="wide") + paddle.sum(wide_weights, axis=1, keepdim=True)
    hidden = paddle.concat([paddle.reshape(embedding, [-1, categories * EMBEDDING_SIZE]), dense], axis=1)
    for layer, size in enumerate(HIDDEN_LAYERS):
        hidden = nn.fc(hidden, size, activation="relu", name=f"deep_{layer}")
    return paddle.nn.functional.sigmoid(wide + nn.fc(hidden, 1, name="deep_out"))


def table_shape(vocabulary: int) -> list[int]:
    """For each category its weight in the wide part and its embedding for the deep part.

    One table holds both, so that a batch costs one request to each server instead of two.
    """
    return [vocabulary, 1 + EMBEDDING_SIZE]


def table_parameter() -> Any:
    return paddle.ParamAttr(EMBEDDING_TABLE, paddle.nn.initializer.Uniform(-0.05, 0.05))


def running_total(name: str, value: Any) -> Any:
    """A variable that every batch adds `value` to, and that stays in the scope for Python to read."""
    total = paddle.static.create_global_var([1], 0.0, "float32", persistable=True, name=name)
    paddle.assign(total + paddle.reshape(value, [1]), total)
    return total
