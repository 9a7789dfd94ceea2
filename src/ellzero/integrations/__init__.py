"""How does a framework's own loop run the three phases? Each module is for one framework and imports it; none is imported from here."""

from ellzero.integrations.phases import Phases

__all__ = ["Phases"]
