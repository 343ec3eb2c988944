"""What the API server in memory knows of kinds: defaults, bounds, and what it refuses."""
