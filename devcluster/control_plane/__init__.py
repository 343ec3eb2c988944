"""etcd, the API server and the controllers, and what one does with a running cluster."""
