"""What is kept of a job after it is gone: the record, how it is bounded, and the page that shows it."""
