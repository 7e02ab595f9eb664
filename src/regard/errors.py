"""The ways in which Regard stops. The command line prints one line and exits with `exit_code`."""


class RegardError(Exception):
    """Anything that stops the work and that one line can explain."""

    exit_code = 1


class UserError(RegardError):
    """A mistake in what the user gave: says what is wrong, where, and how to mend it."""

    exit_code = 2


class UnsupportedError(UserError):
    """A mechanism was asked for something that it can't do."""


class NonFiniteError(RegardError):
    """A loss or gradient became NaN or infinite; nothing was changed by it."""


class NormaliserError(NonFiniteError):
    """The weights of a query add up to zero or less, and can't be divided by their sum."""
