"""Files that operators already have, read as clusters, machines and measurements."""
