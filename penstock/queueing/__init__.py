"""Models of waiting."""
from penstock.queueing.server import StreamServer
from penstock.queueing.steadystate import solve
