"""The instances of one keyed element in one partition, as a micro-batch sees them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from penstock.app.duration import multiple_after
from penstock.app.element import Element, InstanceContext, ProcessingElement
from penstock.app.state import LARGEST_STATE
from penstock.app.stepwise import Stepwise
from penstock.errors import StateError
from penstock.kinds.coding import array_of, msgpack_decoder, msgpack_encoder
from penstock.kinds.defaults import maker
from penstock.runtime.earlier import EarlierReader
from penstock.runtime.instance import Instance, decode_shallow
from penstock.runtime.kept import inexact, is_reduced, is_same, reads_back, surely_kept
from penstock.runtime.letters import FAULTS, described
from penstock.runtime.pages import Page, Pages
from penstock.runtime.wiring import Wiring

READ_BACK_AT_ONCE = 1 << 20
"""So many bytes of encoded states are read back together, to see whether they come back as they are."""


class LiveInstances:
    """The instances that a micro-batch has touched, and the pages that hold all the others.

    Args:
        context: what instances know of the micro-batch.
        clock: the time by which timers are due, in seconds since the epoch; None where that is event time and there is none
            yet.
    """

    def __init__(self, element: Element, wiring: Wiring, pages: Pages, context: InstanceContext, clock: float | None) -> None:
        assert element.prototype is not None
        prototype: type[ProcessingElement] = element.prototype
        self._element, self._prototype, self._made = element, prototype, maker(prototype)
        self.key, self._context, self._clock = wiring.keys[element.name], context, clock
        self.pages = pages
        self.decode: Callable[[Any], Instance[Any]] = msgpack_decoder(Instance[prototype]).decode  # type: ignore[valid-type]
        self._decode_all: Callable[[Any], list[Instance[Any]]] = msgpack_decoder(list[Instance[prototype]]).decode  # type: ignore[valid-type]
        self.encode = msgpack_encoder().encode
        forms = wiring.earlier.get(element.name, ())
        self._form = len(forms)
        self._earlier = EarlierReader(element.name, prototype, forms, self.key.decode) if forms else None
        self._surely_kept, self._is_reduced = surely_kept(prototype), is_reduced(prototype)
        self._reads_back = reads_back(prototype, [stream.event_type for stream in element.inputs])
        self.live: dict[bytes, Instance[Any]] = {}
        """Instances that have been decoded or created, by identity."""
        self.made: set[bytes] = set()
        """Instances that did not exist before this micro-batch."""
        self.settled: dict[bytes, bytes] = {}
        """By identity, the encoded instances as the last settled delivery has left them."""

    def open_all(self, wanted: Iterable[bytes]) -> None:
        """Load instances from their pages by their identities, or create them on first use."""
        identities = [identity for identity in wanted if identity not in self.live]
        numbers = self.pages.numbers(self.key.hashes(identities)).tolist()
        header = self.pages.header
        for identity, number in zip(identities, numbers, strict=True):
            page = self.pages.page(number)
            stored = page.get(identity)
            header.instances += stored is None
            if stored is None or self._has_expired(stored):
                self.made.add(identity)
            page[identity] = entry = self._revive(identity, stored)
            self.adopt(identity, entry, page)

    def read(self, identity: bytes, stored: Any) -> Instance[Any]:
        """Decode a stored instance, also one that an earlier version of the element's code has stored."""
        return self.decode(stored) if self._earlier is None else self._earlier.read(identity, stored)

    def _revive(self, identity: bytes, stored: Any) -> Instance[Any]:
        """Decode a stored instance, or create a new one where none is stored or it has expired."""
        is_gone = stored is None or self._has_expired(stored)
        entry = None if is_gone else self.read(identity, stored)
        if entry is None:
            every, clock = self._element.every, self._clock
            interval = None if every is None else multiple_after(clock or 0.0, every)
            entry = Instance(self._made(), self._context.now, None, interval, self._form)
        return entry

    def _has_expired(self, stored: Any) -> bool:
        return self._element.expires is not None and self.is_expired(decode_shallow(stored))

    def before(self, identity: bytes) -> Instance[Any]:
        """Decode an instance as it was before the current delivery."""
        settled = self.settled.get(identity)
        if settled:
            return self.decode(settled)
        return self._revive(identity, self.pages.stored(self._number(identity), identity))

    def adopt(self, identity: bytes, entry: Instance[Any], page: Page | None = None) -> None:
        """Make an entry the live one of its instance: bind key and context, and put it on its page."""
        entry.state.key = self.key.decode(identity)
        entry.state._context = self._context
        (self._page_of(identity) if page is None else page)[identity] = self.live[identity] = entry

    def forget(self, identity: bytes, page: Page | None = None) -> None:
        """Delete an instance and its state."""
        self.live.pop(identity, None)
        del (self._page_of(identity) if page is None else page)[identity]
        self.pages.header.instances -= 1

    def put_back(self, number: int, held: Collection[bytes]) -> None:
        """Encode the decoded instances on a page again, but for the held ones; write the page if none of these is on it."""
        page = self.pages.page(number)
        for identity, entry in list(page.items()):
            if identity not in held:
                if self._is_empty(entry):
                    self.forget(identity, page)
                else:
                    page[identity] = msgspec.Raw(self.encode(entry))
                    del self.live[identity]
        if page.keys().isdisjoint(held):
            self.pages.release(number)

    def is_expired(self, entry: Instance[Any]) -> bool:
        """Whether an instance has had no event for so long that its key starts with fresh state."""
        return self._element.expires is not None and entry.touched + self._element.expires <= self._context.now

    def _page_of(self, identity: bytes) -> Page:
        return self.pages.page(self._number(identity))

    def _number(self, identity: bytes) -> int:
        return int(self.pages.numbers(self.key.hashes([identity]))[0])

    def check_storable(self, identity: bytes, instance: Instance[Any]) -> bytes | None:
        """Refuse state that cannot be written and read back; returns the encoded instance, or None where it was not needed.

        Raises:
            StateError: names the element, the key and the fault.
        """
        if self._surely_kept(instance.state):
            return None
        key = self.key.decode(identity)
        try:
            content = self.encode(instance)
            read = None if self._reads_back else self.decode(content)
        except FAULTS as error:  # from encoding, decoding, or the prototype's own __post_init__
            raise StateError(
                f"Element {self._element.name}: the state of key {key!r} cannot be kept: {described(error)} (index 0 is the "
                "state); declare the field as what is assigned to it, and keep integers within 64 bits."
            ) from error
        if read is not None and (other := self._other(read.state, instance.state)):
            raise StateError(
                f"Element {self._element.name}: the state of key {key!r} would not come back as it is: {other}. Keep what the "
                "fields are declared as, and times in UTC."
            )
        if len(content) > LARGEST_STATE:
            raise StateError(
                f"Element {self._element.name}: the state of key {key!r} has {len(content):,} bytes, and at most "
                f"{LARGEST_STATE:,} are kept; keep less of it, or divide the key."
            )
        return content

    def check_all(self, identities: Iterable[bytes]) -> tuple[dict[bytes, bytes], dict[bytes, StateError]]:
        """Check live instances as `check_storable` checks one, at a third of the cost: they are read back together.

        Returns what it returns for those that had to be encoded, and what it raises for those that cannot be stored.
        """
        contents, refused = dict[bytes, bytes](), dict[bytes, StateError]()
        for part in self._encoded_in_parts(identities):
            if self._come_back(part):
                contents.update(part)
                continue
            for identity in part:
                try:
                    contents[identity] = self.check_storable(identity, self.live[identity]) or b""
                except StateError as error:
                    refused[identity] = error
        return contents, refused

    def _encoded_in_parts(self, identities: Iterable[bytes]) -> Iterator[dict[bytes, bytes]]:
        """Encode the instances that might not be storable, a part of bounded size at a time. What cannot be is empty."""
        part, size = dict[bytes, bytes](), 0
        for identity in identities:
            instance = self.live[identity]
            if self._surely_kept(instance.state):
                continue
            try:
                part[identity] = self.encode(instance)
            except FAULTS:
                part[identity] = b""
            size += len(part[identity])
            if size >= READ_BACK_AT_ONCE:
                yield part
                part, size = {}, 0
        if part:
            yield part

    def _come_back(self, part: Mapping[bytes, bytes]) -> bool:
        """Whether all instances of a part can be stored; where it is False, some may be."""
        if not all(0 < len(content) <= LARGEST_STATE for content in part.values()):
            return False
        if self._reads_back:
            return True
        try:
            read = self._decode_all(array_of(part.values()))
        except FAULTS:
            return False
        return not self._other([entry.state for entry in read], [self.live[identity].state for identity in part])

    def _other(self, read: Any, written: Any) -> str:
        """What of states would not come back as it is; empty where all does. The states of built-in reducers do."""
        if not is_same(read, written):
            other = ""
            with suppress(Exception):  # the two may differ in any way
                other = inexact(read, written)
            return other or "it has other values"
        return "" if self._is_reduced else inexact(read, written)

    def drop_empty(self) -> None:
        """Delete instances that hold nothing (all windows closed, say): a new instance would be equal."""
        if issubclass(self._prototype, Stepwise):
            empty = [identity for identity, entry in self.live.items() if self._is_empty(entry)]
            for identity, number in zip(empty, self.pages.numbers(self.key.hashes(empty)).tolist(), strict=True):
                self.forget(identity, self.pages.page(number))

    def _is_empty(self, entry: Instance[Any]) -> bool:
        return issubclass(self._prototype, Stepwise) and entry.due is None and entry.state.is_empty()

    def sweep(self) -> None:
        """Delete expired instances from the next few pages; each micro-batch sweeps others."""
        if self._element.expires is None:
            return
        for number in self.pages.next_to_sweep():
            page = self.pages.page(number)
            for identity, stored in list(page.items()):
                if identity not in self.live and self.is_expired(decode_shallow(stored)):
                    del page[identity]
                    self.pages.header.instances -= 1
