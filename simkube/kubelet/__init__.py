"""A simulated scheduler and kubelet, on any API server."""
