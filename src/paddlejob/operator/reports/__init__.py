"""Receives the reports of recorders in pods: authentication, rate, progress, hangs."""
