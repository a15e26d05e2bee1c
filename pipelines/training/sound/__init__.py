"""Play written music: instruments, drums, effects and the mix."""
