"""Networks as bytes: names, positions and values of tensors, exact or on a grid. Written down in docs/formats/format.md."""
