//go:build tools

// Package tools names the etcd programs to build; `python -m devcluster pin` writes it.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
