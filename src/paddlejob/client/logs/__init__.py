"""The logs of all ranks of a job on a cluster as one stream."""
