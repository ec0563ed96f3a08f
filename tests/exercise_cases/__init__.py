"""Right and wrong answers to the exercises, one file a chapter."""
