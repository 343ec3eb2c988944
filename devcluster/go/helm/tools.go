//go:build tools

// Package tools names the helm programs to build; `python -m devcluster pin` writes it.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
