"""One module a family of causes; `explain.py` has their order."""
