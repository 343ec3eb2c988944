"""What one pod does: its workspace, its parameter server and its trainer."""
