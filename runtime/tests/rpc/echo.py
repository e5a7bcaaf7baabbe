"""An action that gives back what it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.rpc.codec import Message, Request
from statefulspark.rpc.messages.batches import BatchRun, ExchangeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Echoed(Message):
    text: str = ""
    numbers: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(Request[Echoed]):
    text: str = ""
    numbers: tuple[int | None, ...] = ()


def echo(request: Echo) -> Echoed:
    return Echoed(text=request.text, numbers=request.numbers)


def exchange_of(uid: str = "u", epoch: int = 1) -> ExchangeRequest:
    run = BatchRun(attempt=1, watermark_ms=None, processing_time_ms=0, expected=-1, operator_state="changed")
    return ExchangeRequest(uid=uid, slot=0, batch=0, epoch=epoch, run=run, waited_s=0.0)
