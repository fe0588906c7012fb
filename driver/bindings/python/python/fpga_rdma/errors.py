"""Exceptions of the package.

All of them are :class:`FpgaError`. Arguments of a wrong type raise ``TypeError``, and impossible values, also integers
that are negative or too large, ``ValueError``; ``OverflowError`` is not raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .endpoint import ReadCompletion, SendCompletion

__all__ = [
    "CardGoneError",
    "ClosedError",
    "DmaMemoryError",
    "FpgaError",
    "InUseError",
    "MapError",
    "NoRegisterError",
    "OpenError",
    "OtherProcessError",
    "PacketLostError",
    "RangeError",
    "ReadFailedError",
    "RefusedError",
    "RingFullError",
    "SendFailedError",
    "StreamStoppedError",
    "TimedOutError",
    "TransferFault",
    "UnsupportedError",
    "WedgedError",
]


class FpgaError(Exception):
    """A call failed.

    ``str()`` is the problem in one line, and the advice in a second one.
    """

    message: str
    """The problem, with the place, in one line."""
    advice: str | None
    """What to do about it; ``None`` if there is nothing to advise."""
    card: str
    """Name of the card; empty if the error concerns none."""
    part: str
    """Part of the card, such as ``h2c0``; empty for the card as a whole."""

    def __init__(self, message: str, advice: str | None = None, card: str = "", part: str = "") -> None:
        super().__init__(message, advice, card, part)
        self.message = message
        self.advice = advice
        self.card = card
        self.part = part

    def __str__(self) -> str:
        return self.message if self.advice is None else f"{self.message}\nhelp: {self.advice}"


class OpenError(FpgaError):
    """The card cannot be opened."""


class InUseError(FpgaError):
    """The resource has an owner, or the memory has a transfer in flight."""


class UnsupportedError(FpgaError):
    """The card has no such resource, or not this function."""


class RangeError(FpgaError, ValueError):
    """The range is not inside the memory, the BAR or the card, or a number is not possible for it."""


class DmaMemoryError(FpgaError, MemoryError):
    """DMA memory is used up, or memory cannot be mapped for the card."""


class RingFullError(FpgaError):
    """The ring is full: call ``poll()``, then submit again."""


class TimedOutError(FpgaError, TimeoutError):
    """The time is over. What was submitted stays in flight."""

    def __str__(self) -> str:
        return FpgaError.__str__(self)


class TransferFault(FpgaError):
    """The engine reported an error in a transfer."""


class WedgedError(FpgaError):
    """The engine does not stop: the card has to be reset."""


class CardGoneError(FpgaError):
    """The card does not answer."""


class ClosedError(FpgaError):
    """The object was closed."""


class OtherProcessError(FpgaError):
    """The object belongs to another process: a child after a fork cannot use what its parent has opened."""


class RefusedError(FpgaError):
    """The system, the peer or the card refused a request."""


class PacketLostError(FpgaError):
    """A received packet is lost: longer than the stream's buffers, or damaged. The next call receives the packet after it."""


class StreamStoppedError(FpgaError, EOFError):
    """The stream was stopped, and all of its packets were received."""


class NoRegisterError(FpgaError, AttributeError):
    """A register map has no register or field of this name."""


class MapError(FpgaError, ValueError):
    """A register map cannot be read, or violates a rule. The message has line and key."""


class SendFailedError(FpgaError):
    """A transfer to another node ended with a failure. A part of it may have arrived."""

    node: int
    """The other node."""
    address: int
    """Address in the memory of the other node that the failure is about; 0 if there is none."""
    reason: str
    """``"unanswered"``, ``"refused"``, ``"not-ready"``, ``"forgotten"``, ``"scheme"``, ``"not-taken"``, ``"deadline"``, ``"cancelled"``,
    ``"superseded"`` (the node knows a later incarnation of this one)."""
    completion: SendCompletion | ReadCompletion | None
    """What is known of the transfer."""

    def __init__(
        self,
        message: str,
        advice: str | None = None,
        card: str = "",
        part: str = "",
        node: int = 0,
        address: int = 0,
        reason: str = "failed",
        completion: SendCompletion | ReadCompletion | None = None,
    ) -> None:
        super().__init__(message, advice, card, part)
        self.args = (message, advice, card, part, node, address, reason, completion)
        self.node = node
        self.address = address
        self.reason = reason
        self.completion = completion


class ReadFailedError(SendFailedError):
    """A read of another node's memory ended with a failure. The content of its destination is undefined."""
