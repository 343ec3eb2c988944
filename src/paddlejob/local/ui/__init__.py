"""Output of a run: live view, plain lines or JSON."""
