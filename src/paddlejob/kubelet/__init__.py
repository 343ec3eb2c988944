"""The kubelet's rules as pure functions, shared by local runs and the simulated kubelet."""
