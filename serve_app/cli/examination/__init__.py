"""What `afa doctor` looks at, room by room."""
