"""etcd, the API server and the controllers, and operations on a running cluster."""
