"""High and low water at Marlow Quay, from the readings of one gauge."""
