"""One look for all who wait, and none where nobody does."""

import asyncio

from penstock.adapter.tail import StreamTail
from penstock.errors import SinkError


def test_errors_do_not_end_the_looking_and_who_leaves_leaves_nothing():
    answers = iter([0, SinkError("busy"), 0, 7])

    def end():
        answer = next(answers, 7)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def waited():
        tail = StreamTail(end)
        gone = [asyncio.create_task(tail.passes(3)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        await asyncio.wait_for(tail.passes(6), 5)
        return tail, asyncio.all_tasks()

    async def main():
        tail, _ = await waited()
        await asyncio.sleep(0.05)
        assert tail._waiting == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
