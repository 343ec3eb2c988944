from __future__ import annotations

import io

from paddlejob.plainjob.run.console import Console


def test_who_speaks_is_marked():
    trainer, others = io.BytesIO(), io.BytesIO()
    console = Console(trainer, others, prefix="[1] ")
    console.trainer_line(b"loss 0.1\n")
    console.server_line(b"serving\n")
    console.say("hello")
    assert trainer.getvalue() == b"[1] loss 0.1\n"
    assert others.getvalue() == b"[1] server: serving\n[1] paddlejob: hello\n"


def test_a_reader_that_has_gone_does_not_end_training():
    closed, others = io.BytesIO(), io.BytesIO()
    closed.close()
    console = Console(closed, others)
    console.trainer_line(b"1\n")
    console.trainer_line(b"2\n")
    console.say("still here")
    assert others.getvalue() == b"paddlejob: still here\n"
