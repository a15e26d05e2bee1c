"""Commands that other programs know by name; `integrations/afa-extractors` installs them."""
