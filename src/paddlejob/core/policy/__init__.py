"""One policy a module, each a pure decision with its own test file."""
