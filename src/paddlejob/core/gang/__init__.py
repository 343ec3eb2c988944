"""Gangs: pods of a job that a scheduler places together.

Each scheduler has an adapter (`volcano`, `native`, `kueue`), listed in `registry`. `model` has the resources.
"""
