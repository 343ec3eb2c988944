"""User input of a run: the job file, images and options."""
