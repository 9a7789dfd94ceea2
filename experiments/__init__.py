"""Scripts that make the tables and figures; they depend on the library, never the other way round."""
