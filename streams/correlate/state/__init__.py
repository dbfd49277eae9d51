"""What the correlator keeps: sightings, placement, names, and the rows they are stored in."""
