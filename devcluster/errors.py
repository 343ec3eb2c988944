"""The error of this package."""


class DevclusterError(Exception):
    """Something a person has to know about, in one sentence."""
