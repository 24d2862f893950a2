"""Clients of the adapter, blocking and asynchronous. Events count once, however many retries sending them takes.

They do not need Spark, nor the rest of Penstock.
"""

from penstock.client.aio import AsyncClient, AsyncProducer
from penstock.client.blocking import Client, Producer
from penstock.client.memory import MemoryTransport
from penstock.client.protocol import Received, Rejected, Sent

__all__ = ["AsyncClient", "AsyncProducer", "Client", "MemoryTransport", "Producer", "Received", "Rejected", "Sent"]
