"""pandas DataFrames of Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return a DataFrame whose columns have Arrow types (``pandas.ArrowDtype``), so a null stays a null and an integer an integer."""
    import pandas as pd  # noqa: PLC0415  a slot or a command line that lists states does not need it

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame
