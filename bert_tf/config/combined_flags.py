"""Combined flags as flags of absl; `config.combined` has their names and the texts they take."""

import functools
from collections.abc import Iterable

from absl import flags, logging

from bert_tf.config.combined import CombinedFlag, combined_form


class FlagOfFields(flags.Flag):
    """A flag that sets the flags of several fields when it is parsed; see `config.combined`."""

    def __init__(self, name: str, form: CombinedFlag, parser: flags.ArgumentParser) -> None:
        self.form = form
        self.fields: list[str] = []  # names of flags without a line in --help
        self._set: dict[str, int] = {}  # how often a flag had been given when this one set it
        super().__init__(parser, None, name, form.default, form.help)

    def add(self, name: str) -> None:
        """Adds a field that only this flag sets; options are listed in the help text."""
        self.fields.append(name)
        if self.form.adds:
            self.help = f"{self.form.help} the names are {', '.join(self.fields)} (--helpfull)."

    def parse(self, argument: str) -> None:
        try:
            values = self.form.read(argument)
            # The field may have the same name as the flag (masked_lm_prob).
            own = values.pop(self.name, argument)
            if self.form.adds:
                self._check_names(values)
            else:
                self._reset()
            for name, value in values.items():
                self._assign(name, value)
        except ValueError as error:
            text = f"flag --{self.name}={argument}: {error}"
            raise flags.IllegalFlagValueError(text) from None
        super().parse(own)

    def unparse(self) -> None:
        self._set = {}
        super().unparse()

    def _check_names(self, values: Iterable[str]) -> None:
        for name in values:
            if name not in self.fields:
                raise ValueError(f"{name} is not one of {', '.join(self.fields)}")

    def _reset(self) -> None:
        """Resets the fields that an earlier use of this flag set."""
        for name, uses in self._set.items():
            # A flag that was given separately since then keeps that value.
            if flags.FLAGS[name].present == uses:
                flags.FLAGS[name].unparse()
        self._set = {}

    def _assign(self, name: str, value: str | float | None) -> None:
        if name not in flags.FLAGS:
            if value is None:
                return
            raise ValueError(f"this program has no {name}")
        flag = flags.FLAGS[name]
        if value is None:
            flag.unparse()
            return
        # A preset does not replace a value that the user gave.
        if self.form.is_preset and flag.present:
            return
        try:
            flag.parse(str(value))
        except flags.IllegalFlagValueError as error:
            raise ValueError(str(error).removeprefix("flag --")) from None
        # absl sets this only for the flags that it finds on the command line.
        flag.using_default_value = False
        self._set[name] = flag.present


def warn_of_fields(arguments: list[str]) -> None:
    """Warns of each flag of a field, on a command line, that a combined flag sets."""
    within: dict[str, str] = {}
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if isinstance(flag, FlagOfFields):
            within.update(dict.fromkeys(flag.fields, name))
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for argument in arguments[1:end]:
        name = argument.partition("=")[0].lstrip("-")
        if name not in within:
            # absl's form of --NAME=false is --noNAME.
            name = name.removeprefix("no")
        if argument.startswith("-") and name in within:
            _warn_once(f"--{name}", combined_form(name, within[name]))


@functools.cache
def _warn_once(name: str, form: str) -> None:
    logging.warning("%s is also accepted, but %s sets it.", name, form)
