"""Builds the programs of a cluster from their Go modules."""
