"""Connections into the pods of a job on a cluster: commands, files, ports."""
