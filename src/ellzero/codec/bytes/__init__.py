"""A lossless coder for bytes: adaptive binary models mixed in the logit domain, in integers."""
