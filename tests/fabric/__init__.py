"""An emulated leaf-spine fabric of network namespaces: real addresses, real routes, real ECMP."""
