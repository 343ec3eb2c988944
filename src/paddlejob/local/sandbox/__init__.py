"""What stands between a container's program and this machine: a supervisor, its init and their namespaces.

The modules here run in a small process of their own, one a container, started without site-packages: they use
the standard library alone and import as little of it as they can: pathlib would double the time to start.
"""
