"""Networks and other files as `.l0` files: saved, loaded, compressed, packed from and unpacked to other formats.

Nothing is re-exported here, because half of it needs torch and the other half must not.
"""
