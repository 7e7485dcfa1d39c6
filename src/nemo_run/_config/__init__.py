"""What configs are made of: Fiddle's buildables, annotations, paths into a tree, drawings."""
