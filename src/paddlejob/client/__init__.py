"""Reads and changes jobs for users; `kubectl pdj`, `paddlejob` and the SDK are built on it."""
