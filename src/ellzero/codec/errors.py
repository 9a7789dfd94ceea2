"""What is wrong with a file, in one line that says what to do."""


class FormatError(ValueError):
    """A file is no `.l0` file, damaged, of a newer version, or asks for the impossible."""


class LimitError(FormatError):
    """A file is as it should be, or may be, but needs more than the caller allows."""
