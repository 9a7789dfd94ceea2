"""What the commands can be told: one frozen dataclass per command, read from the words of a command line without torch."""
