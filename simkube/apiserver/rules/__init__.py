"""Rules of the simulated API server for each kind: defaults, limits, validation."""
