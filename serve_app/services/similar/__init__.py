"""Music that sounds alike: nearest tracks of the library, and ways from one track to another."""
