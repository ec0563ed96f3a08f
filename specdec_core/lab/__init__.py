"""What lessons measure with: mistakes, checks of the law, speed, exercises."""
