"""Networks as `.l0` files: saved, loaded, packed from and unpacked to other formats, and the grids that make their weights few bits.

Nothing is re-exported here, because half of it needs torch and the other half must not.
"""
