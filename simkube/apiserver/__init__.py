"""An API server in memory, behind the transport: it answers as kube-apiserver does."""
