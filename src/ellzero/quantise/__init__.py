"""What weights may be: grids of few values, and how weights move to them at the least cost to the network's answers.

Nothing is re-exported here: grids work without torch, and the rest needs it.
"""
