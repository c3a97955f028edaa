"""Jobs of any shape: dividing units among domains by levels of coarser problems."""
