"""Bounds the memory that objects of users take, and lists the budgets that namespaces share."""
