"""The PaddleJob resource: types, names, defaults, validation and schema. Imports no other package of ours."""
