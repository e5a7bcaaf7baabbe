"""Windows of keyed streams, under PyFlink's names."""
