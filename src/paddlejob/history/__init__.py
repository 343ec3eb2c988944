"""Records that outlive their jobs: their parts, their limits and their HTML page."""
