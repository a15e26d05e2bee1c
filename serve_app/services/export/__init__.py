"""The library in the formats of DJ programs, players and tables."""
