"""The CustomResourceDefinition, made from the types."""
