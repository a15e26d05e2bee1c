"""What an analysis costs."""
