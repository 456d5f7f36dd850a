"""Send the requests of a trace in its order, each with its own lengths and the beginning that it shares."""

from __future__ import annotations

from recommender.smoke.client.conversation import LEAST, ROLES, ChatRequest, Drawn
from recommender.smoke.client.sizing import NUMBERS
from recommender.smoke.filler import write_filler


class Replay:
    """Stands for every conversation of a load; the texts are written before the first request leaves."""

    def __init__(self, drawn: Drawn) -> None:
        """Write the texts. Each begins with the shared part of an earlier one, else with a number of its own."""
        ruler, texts = drawn.ruler, list[str]()
        for each in drawn.replay:
            head = texts[each.of][: ruler.chars(drawn.around + each.shared)] if each.shared else ""
            own = max(ruler.chars(drawn.around + each.prompt) - len(head), LEAST)
            texts.append(head + write_filler(f"{next(NUMBERS):06d} ", own))
        self._left = iter(zip(texts, drawn.replay, strict=True))

    def ask(self, number: int) -> ChatRequest:
        """Return the trace's next request."""
        text, each = next(self._left)
        return ChatRequest(((ROLES[0], text),), each.output, number)

    def hear(self, input_tokens: int, output_tokens: int, answer: str) -> None:
        """Ignore the answer: later prompts were written in advance, with the texts that they repeat."""

    def forget(self) -> None:
        """Do nothing: no request follows from another."""
