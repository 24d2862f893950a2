"""How long the calls take, one by one and many at once, with the service of `service.py` beside. Usage: compare.py [EVENTS]"""

import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.app.loader import load_app
from penstock.testing import TopologyDriver

HERE = Path(__file__).parent


def seconds_of(at_once: int, events: int, service: str) -> float:
    """How long a micro-batch takes with so many calls at once."""
    sys.modules.pop("app", None)
    app, _ = load_app(HERE / "app.py", {"service": service, "at-once": str(at_once)})
    orders = app.topology().sources[0]
    driver = TopologyDriver(app)
    begun = time.monotonic()
    driver.batch({"Orders": [orders.sample(number) for number in range(events)]})
    took = time.monotonic() - begun
    assert [priced.id for priced in driver.output("Output")] == list(range(events)), "a result is missing, or out of order"
    return took


def main() -> None:
    """Start the service, measure both, and say the ratio."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, HERE / "service.py", str(port)]) as service:
        try:
            _until_it_answers(port)
            one_by_one, at_once = (seconds_of(calls, events, f"http://127.0.0.1:{port}") for calls in (1, 50))
        finally:
            service.terminate()
    print(
        f"{events} events: {one_by_one:.1f} s one by one, {at_once:.1f} s with 50 at once: {one_by_one / at_once:.0f} times "
        "faster (measured)"
    )


def _until_it_answers(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("The service does not start.")


if __name__ == "__main__":
    main()
