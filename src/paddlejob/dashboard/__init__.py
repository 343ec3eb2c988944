"""The dashboard: web pages for local runs and jobs on a cluster, for one user or for many."""
