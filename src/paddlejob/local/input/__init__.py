"""What a person gives to a run: the job file, images, options."""
