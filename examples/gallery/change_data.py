"""Change data to a table: inserts, updates and deletes of a database become the present rows, and what each account has.

A change names a version; an older one that comes later is passed over. With `--sink Accounts=sqlite:accounts.db?table=accounts`
the sink is a table with one row an account.
"""

from typing import Literal

from penstock import App, Event, ProcessingElement


class Change(Event):
    op: Literal["insert", "update", "delete"]
    account: str
    version: int
    balance: float = 0.0


class Account(Event):
    account: str
    balance: float
    open: bool


app = App("change_data")
changes = app.source("Changes", Change)
accounts = app.stream("Accounts", Account)
app.sink("Accounts", accounts, key="account")


@app.element(changes, key="account", emits=accounts)
class Row(ProcessingElement):
    version: int = 0
    balance: float = 0.0
    open: bool = True

    def on_event(self, change):
        if change.version > self.version:
            self.version, self.open = change.version, change.op != "delete"
            self.balance = change.balance if self.open else 0.0

    def on_batch(self):
        yield accounts(self.key, self.balance, self.open)
