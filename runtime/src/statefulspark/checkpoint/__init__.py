"""Checkpoints and savepoints: formats, upload, publication, retention, restore, lineage and inspection.

``docs/formats.md`` specifies the formats. Slots use `formats.changelog`, `write.upload` and `restore`; the coordinator uses `lineage`,
`spark`, `write` and `catalog`; the command line uses `inspect`.
"""
