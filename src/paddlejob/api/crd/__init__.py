"""Generates the CustomResourceDefinition from the types."""
