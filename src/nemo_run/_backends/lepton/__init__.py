"""Jobs on Lepton, through the vendor's client."""
