"""Builds container images."""
