"""Follows jobs for people: what `kubectl pdj` and the SDK are made of."""
