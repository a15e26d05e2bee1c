"""What is computed: networks and signal processing on tensors."""
