"""How hypothesis draws its examples here."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every machine, and no limit on the time that a loaded one takes.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")
