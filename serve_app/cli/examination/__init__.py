"""What `afa doctor` checks, room by room."""
