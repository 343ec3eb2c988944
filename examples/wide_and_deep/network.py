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

    wide_weight, embedding = look_up(ids, categories, vocabulary)
    wide = nn.fc(dense, 1, name="wide") + paddle.sum(wide_weight, axis=1, keepdim=True)
    hidden = paddle.concat([embedding, dense], axis=1)
    for layer, size in enumerate(HIDDEN_LAYERS):
        hidden = nn.fc(hidden, size, activation="relu", name=f"deep_{layer}")
    probability = paddle.nn.functional.sigmoid(wide + nn.fc(hidden, 1, name="deep_out"))

    loss = paddle.mean(paddle.nn.functional.log_loss(probability, paddle.cast(label, "float32"), 1e-7))
    loss_sum, batches = running_total("loss_sum", loss), running_total("batches", paddle.ones_like(loss))
    # paddle's auc operator counts the predictions in histograms, which train.py reads and adds up.
    *_, histograms = paddle.static.auc(paddle.concat([1 - probability, probability], axis=1), label)
    positive, negative = histograms[2:4]
    return Network([dense, ids, label], loss, loss_sum, batches, positive, negative)


def look_up(ids: Any, categories: int, vocabulary: int) -> tuple[Any, Any]:
    """Each category's weight in the wide part, and all embeddings of a row side by side for the deep part.

    One table holds both, so that a batch costs one request to each server instead of two.
    """
    rows = nn.sparse_embedding(
        input=ids,
        size=[vocabulary, 1 + EMBEDDING_SIZE],
        param_attr=paddle.ParamAttr(EMBEDDING_TABLE, paddle.nn.initializer.Uniform(-0.05, 0.05)),
    )
    wide_weight, embedding = paddle.split(rows, [1, EMBEDDING_SIZE], axis=1)
    wide_weights = paddle.reshape(wide_weight, [-1, categories])
    return wide_weights, paddle.reshape(embedding, [-1, categories * EMBEDDING_SIZE])


def running_total(name: str, value: Any) -> Any:
    """A variable that every batch adds `value` to, and that stays in the scope for Python to read."""
    total = paddle.static.create_global_var([1], 0.0, "float32", persistable=True, name=name)
    paddle.assign(total + paddle.reshape(value, [1]), total)
    return total
