"""What the commands can be told: one dataclass per command, without torch."""
