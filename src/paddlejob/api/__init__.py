"""The PaddleJob resource: types, names, defaults, validation and schema. Imports nothing of ours."""
