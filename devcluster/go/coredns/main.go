// Command coredns is CoreDNS with the few plugins that a development cluster's DNS needs.
//
// The full CoreDNS carries the client libraries of every large cloud, which would take most of the time of its build.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
