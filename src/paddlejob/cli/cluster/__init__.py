"""Verbs about jobs on a cluster; those that a local run has too work on both."""
