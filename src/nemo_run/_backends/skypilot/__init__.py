"""Jobs on clusters that SkyPilot makes, and its managed jobs."""
