"""What tenants write is shown by a terminal and not obeyed."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from paddlejob.cli import output, shared, terminal
from paddlejob.cli.show.describe import event_table
from paddlejob.client.job import JobEvent

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
PLAIN = {
    "text": ("步骤 1\tloss 0.5\n", "步骤 1\tloss 0.5\n"),
    "colours": ("\x1b[31mred\x1b[0m", "red"),
    "the clipboard": (CLIPBOARD, "?]52;c;cm0gLXJmIH4=?"),
    "a cleared screen": ("\x1b[2Jx", "x"),
    "sequences in one character": ("\x9b2J", "?2J"),
    "a line that is written over": ("error\rfine ", "error?fine "),
    "bytes that are not text": (b"caf\xe9".decode(errors="surrogateescape"), "caf?"),
}


@pytest.mark.parametrize(("text", "shown"), PLAIN.values(), ids=PLAIN)
def test_a_text_is_printed_without_what_a_terminal_would_obey(text, shown, capsys):
    terminal.say(text, nl=False)
    shared.say_error(text)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (shown, f"error: {shown}\n")


def test_a_cell_cannot_leave_its_place():
    table = output.table([("NAME", "REASON"), ("a", f"x\n{CLIPBOARD}b   Completed"), ("c", "d")])
    assert table.splitlines() == ["NAME   REASON", "a      x b Completed", "c      d"]
    assert output.fields([("Message", "x\nReason:  fine"), ("Mode", "")]) == "Message:  x Reason: fine"


def test_events_are_shown_without_what_a_probe_printed_for_the_terminal():
    now = datetime.now(UTC)
    event = JobEvent("Warning", "Unhealthy", f"Liveness probe failed: {CLIPBOARD}\x1b[2J", "Pod/x", now)
    assert event_table([event], now).splitlines()[1].endswith("Liveness probe failed:")


def test_json_has_all_that_was_written_and_no_control_characters():
    text = output.json_text({"a": "\x1b[2J\x9b步\x7f"})
    assert json.loads(text) == {"a": "\x1b[2J\x9b步\x7f"}
    assert text.replace("\n", "").isprintable()
