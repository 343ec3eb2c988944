"""Decides the next steps of a PaddleJob, without a clock, a network or a log."""
