"""The cluster shell: informers feed a queue, a worker plans, an executor acts."""
