"""Hooks by which tests do harm: processes that die at named points, storage that fails. No image contains this package."""
