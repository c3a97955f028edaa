"""Small jobs: the best placement, and the proof."""
