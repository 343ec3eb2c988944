"""Bounds the memory that objects of users take in the operator."""
