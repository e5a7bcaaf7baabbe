"""Manifests on Kubernetes, and the contract between operator and driver about pods."""
