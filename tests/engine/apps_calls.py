"""An application that prints, logs and awaits."""

import asyncio
import logging
import sys

from penstock import App, Event, ProcessingElement

log = logging.getLogger("shop")


class Call(Event):
    number: int
    key: str


class Answer(Event):
    number: int
    key: str
    nth: int


app = App("calls")
calls, asked, answers = app.source("Calls", Call), app.stream("Asked", Call), app.stream("Answers", Answer)
app.sink("Output", answers)


@app.element(calls, emits=asked, concurrency=20, timeout="2 s")
async def ask(call):
    await asyncio.sleep(0.05)
    print("asking", call.number)
    if call.number == 3:
        raise ConnectionError("the service is down")
    yield asked(call.number, call.key)


@app.element(asked, emits=answers, key="key")
class Answering(ProcessingElement):
    nth: int = 0

    async def on_event(self, call):
        self.nth += 1
        await asyncio.sleep(0.01)
        log.debug("closely")
        log.info("call %d", call.number)
        if call.number == 4:
            raise ValueError("four")
        return answers(call.number, self.key, self.nth)

    def on_batch(self):
        print("in", "a row", self.nth, file=sys.stderr)
