"""Pods as processes on this machine."""
