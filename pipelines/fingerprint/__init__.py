"""What identification asks with: made beside the decoder, plain data that crosses processes."""
