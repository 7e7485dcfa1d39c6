"""Words become values: grammar, literals, types, config files, paths into configs."""
