"""Reading instances that earlier versions of an element's code have stored: as they are, or through its ``migrate``."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.app.earlier import EarlierForm
from penstock.app.element import ProcessingElement
from penstock.errors import StateError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.runtime.instance import Instance, decode_shallow
from penstock.runtime.letters import FAULTS, described


class EarlierReader:
    """Decodes instances of one element, in whatever form they lie.

    Parameters
    ----------
    forms: those that there have been, by the number of migrations that an instance has behind it.
    show_key: the value of an encoded key, for the sentence of an error.
    """

    def __init__(
        self,
        name: str,
        prototype: type[ProcessingElement],
        forms: Sequence[EarlierForm],
        show_key: Callable[[bytes], Any],
    ) -> None:
        self._name, self._prototype, self._forms, self._show_key = name, prototype, forms, show_key
        self._decode: Callable[[Any], Instance[Any]] = msgpack_decoder(Instance[prototype]).decode  # type: ignore[valid-type]
        self._encode = msgpack_encoder().encode
        fields = msgspec.structs.fields(prototype)
        self._values = {field.encode_name: msgpack_decoder(field.type).decode for field in fields}

    def read(self, identity: bytes, content: Any) -> Instance[Any]:
        """An instance, in today's form.

        Raises
        ------
        StateError: ``migrate`` has failed, or made what cannot be kept.
        """
        stored = decode_shallow(content)
        if stored.form >= len(self._forms):
            return self._decode(content)
        form = self._forms[stored.form]
        try:
            state = self._migrated(form, stored.state)
            whole = Instance(state, stored.touched, stored.due, stored.interval, len(self._forms))
            return self._decode(self._encode(whole))
        except FAULTS as error:
            raise StateError(
                f"Element {self._name}: migrate has failed for the state of key {self._show_key(identity)!r}, "
                f"stored with the fields {', '.join(form.fields) or 'none'}: {described(error)}; mend migrate, and start again."
            ) from error

    def _migrated(self, form: EarlierForm, content: msgspec.Raw) -> Any:
        if form.whole:
            return msgpack_decoder(self._prototype).decode(content)
        if form.by_place:
            values = msgspec.msgpack.decode(content, type=list[msgspec.Raw])
            fields = dict(zip(form.fields, values, strict=False))
        else:
            fields = msgspec.msgpack.decode(content, type=dict[str, msgspec.Raw])
        old = {
            name: self._values[name](value) if name in form.fitting else msgspec.msgpack.decode(value)
            for name, value in fields.items()
        }
        state = self._prototype.migrate(old)
        if type(state) is not self._prototype:
            raise TypeError(f"it returned {state!r}; return a {self._prototype.__name__}")
        return state
