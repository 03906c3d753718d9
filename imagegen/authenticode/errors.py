"""The one exception of this package that is about bytes. `verify` turns it into a verdict."""


class MalformedData(Exception):
    """The bytes are not what they should be. The message says which part, and follows "the signature is damaged: "."""
