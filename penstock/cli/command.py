"""The base class of all commands."""

from collections import Counter
from functools import partial
from typing import Any

import click


class Command(click.Command):
    """A command that refuses a repeated option that takes one value, where click would silently use the last one."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, order = parse(args)
            for param, times in Counter(order).items():
                if times > 1 and isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count):
                    raise click.UsageError(f"{param.opts[0]} is given {times} times, and has one value: give it once.", ctx)
            return values, rest, order

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


command = partial(click.command, cls=Command)
