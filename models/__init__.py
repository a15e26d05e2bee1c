"""The computations: networks and signal processing on tensors."""
