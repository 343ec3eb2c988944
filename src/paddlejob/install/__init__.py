"""Installs the operator on a cluster from the manifests that the package carries."""
