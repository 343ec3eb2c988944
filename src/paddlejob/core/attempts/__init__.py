"""Attempts: what begins a new one, how it begins, and how long it waits."""
