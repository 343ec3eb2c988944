"""Builders, an in-memory API server, faults and virtual time, for our tests and for yours."""
