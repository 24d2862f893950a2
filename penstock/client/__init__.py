"""A client of the adapter, blocking and asynchronous: sends events once, however often it has to try.

It needs nothing of Penstock's but this package, and no Spark.
"""

from penstock.client.aio import AsyncClient, AsyncProducer
from penstock.client.blocking import Client, Producer
from penstock.client.memory import MemoryTransport
from penstock.client.protocol import Received, Rejected, Sent

__all__ = ["AsyncClient", "AsyncProducer", "Client", "MemoryTransport", "Producer", "Received", "Rejected", "Sent"]
