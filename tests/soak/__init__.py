"""Many runs for a long time: that they end in order, and that nothing grows."""
