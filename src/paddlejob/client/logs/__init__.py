"""The logs of all ranks of a cluster job as one stream."""
