"""Checkpoints and savepoints: formats, upload, publication, retention, restore, lineage and inspection.

The formats themselves are written down in ``docs/formats.md``. Slots use `changelog`, `upload` and `restore`; the
coordinator uses `lineage`, `location`, `publish`, `catalog` and `retention`; people use `inspect` through the command line.
"""
