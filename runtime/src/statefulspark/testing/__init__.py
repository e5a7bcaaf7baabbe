"""Test kits for users who extend the runtime; needs pytest."""
