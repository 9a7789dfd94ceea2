"""What the commands do: one function per command, which takes its options and returns an exit status, or None for 0."""
