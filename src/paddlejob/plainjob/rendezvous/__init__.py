"""How the pods of a Job find each other and keep in step."""
