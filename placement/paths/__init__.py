"""Which ways the connections of a placement take, and source ports that spread them."""
