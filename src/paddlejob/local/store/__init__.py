"""What runs keep on disk and in memory."""
