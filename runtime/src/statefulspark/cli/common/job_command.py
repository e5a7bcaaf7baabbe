"""Commands about one running job, which its first free argument names as ``--job`` does."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class JobCommand(TyperCommand):
    """Accepts the job as a positional argument too: ``statefulspark savepoint payments``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.context_settings["allow_extra_args"] = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the one argument that is left over as the job's name."""
        rest: list[str] = super().parse_args(ctx, args)
        if not rest or ctx.resilient_parsing:
            return rest
        if len(rest) > 1 or ctx.params["job"] is not None:
            ctx.fail(f"Got unexpected extra arguments ({' '.join(rest)}): one job at a time, as [JOB] or as --job")
        ctx.params["job"] = rest[0]
        ctx.args = []
        return []

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the argument in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[JOB]"]
