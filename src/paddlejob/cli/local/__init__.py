"""Verbs about runs on this machine."""
