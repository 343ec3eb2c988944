"""HTTP ports of the operator: bounded before authentication, each on a thread with an event loop."""
