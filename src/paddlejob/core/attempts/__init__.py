"""Attempts: the causes of a new one, its beginning, and its delay."""
