"""What a kubelet decides, without a clock or a process; local runs and the simulated kubelet share it."""
