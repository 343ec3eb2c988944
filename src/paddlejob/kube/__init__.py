"""A generic Kubernetes client runtime; it knows nothing of Paddle."""
