from tests.integration.skypilot.bed import skypilot_bed

__all__ = ["skypilot_bed"]
