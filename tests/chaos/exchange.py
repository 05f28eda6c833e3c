"""Where hands of one language leave detached locks for hands of the others; a part of the store's process.

`give GIVER LANGUAGE UNTIL_NS SHAPE TEXT` offers a lock, and `take LANGUAGE` returns one of another language, `GIVER
UNTIL_NS SHAPE TEXT`, or `none`. The taker says `done GIVER over`, or `gone` if it did not get the lock. The giver asks
with `given GIVER` what became of it: it is `open`, `taken`, `over`, or `gone` with its taker. With `withdraw GIVER` it
gets an offer that is still open back.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass
class Offer:
    """A lock that is offered, by this connection."""

    by: Hashable
    language: str
    text: str
    state: str = "open"
    taker: Hashable = None


class Exchange:
    """The offers, by giver."""

    def __init__(self) -> None:
        self._offers: dict[str, Offer] = {}

    def perform(self, connection: Hashable, words: list[str]) -> str | None:
        """Returns the answer to a line, if it is about an offer."""
        match words:
            case ["give", giver, language, *text]:
                self._offers[giver] = Offer(connection, language, " ".join(text))
                return "ok"
            case ["take", language]:
                return self._take(connection, language)
            case ["done", giver, state]:
                # Its giver may be gone.
                if giver in self._offers:
                    self._offers[giver].state = state
                return "ok"
            case ["given", giver]:
                return self._offers[giver].state
            case ["withdraw", giver]:
                offer = self._offers[giver]
                if offer.state == "open":
                    offer.state = "withdrawn"
                return offer.state
        return None

    def _take(self, connection: Hashable, language: str) -> str:
        for giver, offer in self._offers.items():
            if offer.state == "open" and offer.language != language:
                offer.state, offer.taker = "taken", connection
                return f"{giver} {offer.text}"
        return "none"

    def left(self, connection: Hashable) -> None:
        """The process at the end of a connection is gone."""
        for giver, offer in list(self._offers.items()):
            if offer.by == connection:
                del self._offers[giver]
            elif offer.taker == connection and offer.state == "taken":
                offer.state = "gone"
