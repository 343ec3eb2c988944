"""Verbs that show jobs."""
