"""Run one pod: its workspace, its parameter server and its trainer."""
