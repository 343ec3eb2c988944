"""Gangs: which scheduler places the pods of a job together, what it is asked, and when pods may be created.

A scheduler is one adapter (`volcano`, `native`, `kueue`) that `registry` knows; its resources are in `model`.
"""
