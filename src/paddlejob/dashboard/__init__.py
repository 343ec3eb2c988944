"""The dashboard: one page for runs on this machine and for jobs on a cluster, served to its user alone."""
