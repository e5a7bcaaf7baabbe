"""Slots as the driver knows them: incarnations, calls, losses, restores, rescaling."""
