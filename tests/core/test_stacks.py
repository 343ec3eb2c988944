from __future__ import annotations

import faulthandler
import tempfile
import threading

from paddlejob.training import stacks

DUMP = """Thread 0x00007fcd0b6216c0 (most recent call first):
  File "/etc/paddlejob/recorder/sender.py", line 82 in _run
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fcd0b6216c1 (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/app/data.py", line 12 in read

Thread 0x00007fcd33025b80 (most recent call first):
  File "/usr/lib/python3.11/site-packages/paddle/distributed/parallel.py", line 1162 in init_parallel_env
  File "/app/train.py", line 9 in <module>
"""


def test_the_main_thread_is_first_and_the_recorders_own_is_left_out():
    main, reader = stacks.parse_threads(DUMP)
    assert [frame.function for frame in main] == ["init_parallel_env", "<module>"]
    assert str(reader[1]) == "read (data.py:12)"


def test_a_process_is_where_its_own_code_is():
    assert stacks.parse_position(DUMP).place == "<module> (train.py:9)"
    only_library = DUMP.replace('  File "/app/train.py", line 9 in <module>\n', "")
    assert stacks.parse_position(only_library).place == "init_parallel_env (parallel.py:1162)"
    assert stacks.parse_position("").place == stacks.parse_position("noise").place == ""


def test_those_at_the_same_place_are_one_group_whatever_their_threads_are_called():
    same, elsewhere = DUMP.replace("0x00007fcd", "0x00001234"), DUMP.replace("line 9", "line 10")
    groups = stacks.group_by_stack([("a", elsewhere), ("b", DUMP), ("c", same)])
    assert [names for names, _ in groups] == [["b", "c"], ["a"]]


def test_a_position_has_nothing_but_the_frames_of_a_dump():
    hostile = f'{DUMP}password: hunter2\n  File "\x1b[31m\x9b2Jx", line 1 in y\n'
    found = stacks.parse_position(hostile)
    assert all(line.isprintable() for line in found.dump.split("\n"))
    assert "hunter2" not in found.dump
    assert stacks.parse_position(found.dump) == found
    assert stacks.parse_position(DUMP) == stacks.parse_position(DUMP.replace("0x00007fcd", "0x00001234"))


def test_a_position_is_short_whatever_a_process_sends():
    frame = f'  File "{"/x" * 400}", line {"9" * 400} in {"f" * 400}\n'
    found = stacks.parse_position(f"Thread 0x1 (most recent call first):\n{frame * 20}")
    assert len(found.dump) <= stacks.MAX_TEXT_LENGTH
    assert len(found.place) < 3 * stacks.MAX_NAME_LENGTH


def test_what_this_python_writes_is_understood():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        done.set()
        thread.join()
        file.seek(0)
        main, *others = stacks.parse_threads(file.read().decode())
    assert any(frame.function == "test_what_this_python_writes_is_understood" for frame in main)
    assert any(each[-1].function == "_bootstrap" for each in others)
