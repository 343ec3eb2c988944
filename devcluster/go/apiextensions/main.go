// The API server of custom resources alone, of a version that still serves apiextensions.k8s.io/v1beta1:
// whole API servers that old do not build from their Go modules. go.mod raises the few libraries that do not
// get along with today's Go: golang.org/x/sys, modern-go/reflect2 and json-iterator/go.
package main

import (
	"os"

	"k8s.io/apiextensions-apiserver/pkg/cmd/server"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

func main() {
	command := server.NewServerCommand(os.Stdout, os.Stderr, genericapiserver.SetupSignalHandler())
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
