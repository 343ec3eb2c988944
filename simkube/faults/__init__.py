"""Seeded faults between a client and an API server."""
