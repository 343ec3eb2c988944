"""How a status is written: as a merge patch, and only if the API server stores every field of it."""
