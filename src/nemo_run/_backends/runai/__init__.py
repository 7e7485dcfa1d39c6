"""Jobs on DGX Cloud, whose control plane is Run:ai."""
