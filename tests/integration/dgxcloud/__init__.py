"""Jobs on an emulated DGX Cloud."""
