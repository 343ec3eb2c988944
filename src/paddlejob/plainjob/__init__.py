"""Training as a plain Kubernetes Job, without the operator."""
