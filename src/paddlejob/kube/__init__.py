"""A generic Kubernetes client runtime, independent of Paddle; see README.md."""
