"""Training telemetry: progress from logs and reports, hangs, stragglers, stacks and goodput. Pure."""
