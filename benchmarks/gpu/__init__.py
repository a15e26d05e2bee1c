"""Networks and front-ends at full size: rates, parity, invariance."""
