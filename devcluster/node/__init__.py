"""A real node: a machine made of namespaces, its network and its programs."""
