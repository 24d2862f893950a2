"""Reads instances that earlier versions of an element's code have stored; old states are converted by its ``migrate``."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from penstock.app.earlier import EarlierForm
from penstock.app.element import ProcessingElement
from penstock.app.state import LARGEST_STATE
from penstock.errors import StateError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.runtime.instance import Instance, decode_shallow
from penstock.runtime.letters import FAULTS, described


class EarlierReader:
    """Decodes instances of one element that were stored in the current or an earlier form.

    Args:
        forms: the earlier forms; an instance's ``form`` is the index of its own.
        show_key: decodes an encoded key, for error messages.
    """

    def __init__(
        self, name: str, prototype: type[ProcessingElement], forms: Sequence[EarlierForm], show_key: Callable[[bytes], Any]
    ) -> None:
        self._name, self._prototype, self._forms, self._show_key = name, prototype, forms, show_key
        self._decode: Callable[[Any], Instance[Any]] = msgpack_decoder(Instance[prototype]).decode  # type: ignore[valid-type]
        self._encode = msgpack_encoder().encode
        fields = msgspec.structs.fields(prototype)
        self._values = {field.encode_name: msgpack_decoder(field.type).decode for field in fields}

    def read(self, identity: bytes, content: Any) -> Instance[Any]:
        """Decode an instance, and migrate it to the current form if needed.

        Raises:
            StateError: ``migrate`` has failed, or returned a state that cannot be stored.
        """
        stored = decode_shallow(content)
        if stored.form >= len(self._forms):
            return self._decode(content)
        form = self._forms[stored.form]
        try:
            state = self._migrated(form, stored.state)
            whole = self._encode(Instance(state, stored.touched, stored.due, stored.interval, len(self._forms)))
            if len(whole) > LARGEST_STATE:
                raise ValueError(f"it has {len(whole):,} bytes, and at most {LARGEST_STATE:,} are kept")
            return self._decode(whole)
        except FAULTS as error:
            reason = "it cannot be read again" if form.whole else "migrate has failed"
            raise StateError(
                f"Element {self._name}: of the state of key {self._show_key(identity)!r}, stored with the fields "
                f"{', '.join(form.fields) or 'none'}, {reason}: {described(error)}; mend the class, and start again."
            ) from error

    def _migrated(self, form: EarlierForm, content: msgspec.Raw) -> Any:
        if form.whole:
            return msgpack_decoder(self._prototype).decode(content)
        if form.by_place:
            values = msgspec.msgpack.decode(content, type=list[msgspec.Raw])
            fields = dict(zip(form.fields, values[form.tag is not None :], strict=False))
        else:
            fields = msgspec.msgpack.decode(content, type=dict[str, msgspec.Raw])
            fields.pop(form.tag or "", None)
        left_out: dict[str, Any] = {name: value for name, value in form.omitted if name not in fields}
        old = {}
        for name, value in (fields | left_out).items():
            if name in form.fitting:
                old[name] = self._values[name](value)
            else:
                with suppress(msgspec.DecodeError):  # a dict with events as keys, say, cannot be decoded without its type
                    old[name] = msgspec.msgpack.decode(value)
        state = self._prototype.migrate(old)
        if type(state) is not self._prototype:
            raise TypeError(f"it returned {state!r}; return a {self._prototype.__name__}")
        return state
