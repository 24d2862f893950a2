"""Large transfers are reported to the desk for fraud by its webhook, and written down."""

import json
from urllib.request import Request, urlopen

from penstock import App, Event

HOOK = "http://127.0.0.1:9/transfers"


class Transfer(Event):
    id: int
    account: str
    cents: int


app = App("webhook")
transfers = app.source("Transfers", Transfer)
large = app.stream("Large", Transfer)
app.sink("Large", large)


@app.element(transfers, emits=large)
def notify(transfer):
    if transfer.cents < 1_000_000:
        return
    request = Request(HOOK, data=json.dumps({"id": transfer.id}).encode(), method="POST")
    try:
        urlopen(request, timeout=0.2)
    except OSError:
        pass  # the desk looks at the list, too
    yield large(transfer.id, transfer.account, transfer.cents)
