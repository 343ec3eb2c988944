"""The trained model for predictions: one program that has the embedding table in it and needs no servers.

MODEL_DIR/
  wide_and_deep.pdmodel      the program
  wide_and_deep.pdiparams    the parameters
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import network
import numpy as np
import paddle

NAME = "wide_and_deep"


def save(
    executor: Any, trained: network.Network, directory: Path, numbers: int, categories: int, vocabulary: int
) -> None:
    """Writes the model as it is now, on the servers and in this worker."""
    table = read_table(executor, trained, vocabulary)
    scope = paddle.static.global_scope()
    program = paddle.static.Program()
    # A generator of names of its own, so that the parameters are called as in training.
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(program, paddle.static.Program()):
        inputs, probability = network.build_for_prediction(numbers, categories, vocabulary)
    values = {
        parameter.name: table
        if parameter.name == network.EMBEDDING_TABLE
        else np.array(scope.find_var(parameter.name).get_tensor())
        for parameter in program.all_parameters()
    }
    with paddle.static.scope_guard(paddle.static.Scope()):
        for name, value in values.items():
            tensor = paddle.static.global_scope().var(name).get_tensor()
            tensor.set(value, paddle.CPUPlace())
        directory.mkdir(parents=True, exist_ok=True)
        place = str(directory / NAME)
        paddle.static.save_inference_model(place, inputs, [probability], executor, program=program)


def read_table(executor: Any, trained: network.Network, vocabulary: int) -> Any:
    """All rows of the embedding table, fetched from the servers as a batch fetches those it needs."""
    look_up = paddle.static.default_main_program().clone()
    block = look_up.global_block()
    for index, operator in reversed(list(enumerate(block.ops))):
        if trained.table_rows.name not in operator.output_arg_names:  # the training around it
            block._remove_op(index)  # noqa: SLF001 - Paddle has no public way to cut a program
    _, ids, _ = trained.inputs
    every_id = np.arange(vocabulary, dtype="int64").reshape(-1, 1)
    wanted = paddle.base.create_lod_tensor(every_id, [[vocabulary]], paddle.CPUPlace())
    (rows,) = executor.run(
        look_up, feed={ids.name: wanted}, fetch_list=[trained.table_rows.name], return_numpy=False
    )
    return np.array(rows)
