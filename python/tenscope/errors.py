"""What tenscope raises: Error and, for each kind of failure, a subclass that is also the fitting built-in exception."""

__all__ = [
    "CorruptError",
    "Divergence",
    "Error",
    "IoError",
    "NotFoundError",
    "RecordingWarning",
    "UnsupportedError",
    "UsageError",
    "VersionError",
]


class Error(Exception):
    """Every failure of tenscope. The message says what failed, then why, and names the path last."""

    __module__ = "tenscope"


class IoError(Error, OSError):
    """The system refused: disk full, no permission, a file in the way."""

    __module__ = "tenscope"


class NotFoundError(Error, FileNotFoundError, KeyError):
    """No such run, file, name, step or call."""

    __module__ = "tenscope"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CorruptError(Error, ValueError):
    """A file is damaged: it contradicts its format or its checksum."""

    __module__ = "tenscope"


class VersionError(Error, ValueError):
    """A file was written by a newer tenscope."""

    __module__ = "tenscope"


class UsageError(Error, ValueError):
    """An argument makes no sense."""

    __module__ = "tenscope"


class UnsupportedError(Error, TypeError):
    """A type or feature that tenscope does not handle."""

    __module__ = "tenscope"


class Divergence(Error, AssertionError):
    """What is recorded differs from the reference: the message is the report, `diff` the tenscope.Diff."""

    __module__ = "tenscope"

    def __init__(self, diff: object) -> None:
        super().__init__(str(diff))
        self.diff = diff


class RecordingWarning(RuntimeWarning):
    """Something was not recorded; the program goes on. TENSCOPE_STRICT=1 raises instead."""

    __module__ = "tenscope"


BY_CODE = {
    "Io": IoError,
    "Corrupt": CorruptError,
    "Version": VersionError,
    "InvalidArgument": UsageError,
    "NotFound": NotFoundError,
    "Unsupported": UnsupportedError,
}


def code_of(error: object) -> str:
    """The word for its kind in the JSON of the command line."""
    if isinstance(error, Error):
        return next((code for code, kind in BY_CODE.items() if isinstance(error, kind)), "Unsupported")
    return "Io" if isinstance(error, OSError) else "Unsupported"
