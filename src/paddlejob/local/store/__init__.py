"""Files that runs keep on disk and in memory."""
