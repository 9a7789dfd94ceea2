"""Changes one thing in the sources at a time and asks whether a test notices: `make mutants`.

    python -m tools.mutants            tries what is drawn and has no record yet; stops and resumes anywhere
    python -m tools.mutants --survivors    tries again what has survived, with every test that calls it
    python -m tools.mutants --table    renders the table of `CONTRIBUTING.md` from the records

A mutant has a name that is a hash of its function's source and of the change. Drawn are those of each room whose names come first once they
are hashed with the seed, so that the draw moves only where the code does.
"""
