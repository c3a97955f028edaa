"""Pictures of clusters and placements, as SVG text."""
