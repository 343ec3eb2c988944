"""Verbs that start and change jobs."""
