"""Runs a PaddleJob on one machine: pods are local processes, and the operator's core plans them."""
