"""The sandbox of a container's program: a supervisor, an init process and their namespaces.

These modules run in one small process per container, started without site-packages. They use only the
standard library and import little of it: pathlib would double the start-up time.
"""
