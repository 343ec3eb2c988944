"""Verbs that set things up: files, the operator, plain Jobs."""
