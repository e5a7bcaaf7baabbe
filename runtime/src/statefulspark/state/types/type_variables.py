"""Type variables of types and state descriptors, so that an editor knows what a state holds.

Without an argument, as in ``ValueStateDescriptor``, they are ``Any``. Type checkers have ``typing_extensions``, whose type variables can have a
default before Python 3.13; this package does not need it to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["ACC", "IN", "OUT", "K", "K_co", "T", "T_co", "V", "V_co"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    IN = TypeVar("IN", default=Any)
    ACC = TypeVar("ACC", default=Any)
    OUT = TypeVar("OUT", default=Any)
else:
    from typing import TypeVar

    T_co, K_co, V_co = (TypeVar(name, covariant=True) for name in ("T_co", "K_co", "V_co"))
    T, K, V, IN, ACC, OUT = map(TypeVar, ("T", "K", "V", "IN", "ACC", "OUT"))
