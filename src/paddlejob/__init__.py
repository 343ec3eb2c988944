"""PaddlePaddle training on Kubernetes, and on a laptop with the same YAML."""

__version__ = "0.1.0"
