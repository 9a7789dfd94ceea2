"""Bytes and arrays: the container, the range coder, and what is built on them. Integers only, never torch."""
