"""The run-time type checker that jaxtyping's import hook applies to ellzero in tests."""

from beartype import BeartypeConf, beartype

# As everywhere in Python's type system (PEP 484), an int is accepted where a float is expected: `alpha=0` is no error.
checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
