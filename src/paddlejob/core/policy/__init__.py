"""Policies of a job: success, deadlines, clean-up, invalid specs, holds."""
