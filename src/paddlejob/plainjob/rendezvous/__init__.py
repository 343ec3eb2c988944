"""Let the pods of a Job find and wait for each other."""
