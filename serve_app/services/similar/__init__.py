"""Music that sounds alike: nearest tracks of the library, and paths from one track to another."""
