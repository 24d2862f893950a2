"""What one would write first: a FastAPI handler that writes a request's events to Kafka and waits for all brokers.

uvicorn benchmarks.apps.plain_door:app  (with BROKERS in the environment)
"""

import asyncio
import os
import threading

from confluent_kafka import Producer
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

app = FastAPI()
producer = Producer({"bootstrap.servers": os.environ["BROKERS"], "acks": "all"})


def poll() -> None:
    while True:
        producer.poll(0.1)


threading.Thread(target=poll, daemon=True).start()


class Line(BaseModel):
    text: str
    size: int


@app.post("/lines")
async def write(lines: Line | list[Line]) -> dict[str, int]:
    lines = lines if isinstance(lines, list) else [lines]
    await acknowledged([line.model_dump_json() for line in lines])
    return {"accepted": len(lines)}


@app.post("/requests")
async def write_whole(lines: Line | list[Line], request: Request) -> dict[str, int]:
    """A request is one message, for its reader to divide."""
    await acknowledged([await request.body()])
    return {"accepted": len(lines) if isinstance(lines, list) else 1}


async def acknowledged(messages: list[str] | list[bytes]) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = len(messages)

    def delivered(error, message):
        nonlocal left
        left -= 1
        if error is not None:
            loop.call_soon_threadsafe(done.set_exception, HTTPException(503))
        elif left == 0:
            loop.call_soon_threadsafe(done.set_result, None)

    for message in messages:
        producer.produce("lines", message, on_delivery=delivered)
    await done
