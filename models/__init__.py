"""What is computed: networks and signal processing on tensors. Imports torch, torchaudio, transformers and numpy only."""
