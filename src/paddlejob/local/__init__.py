"""The laptop shell: every pod a group of local processes, planned by the same core."""
