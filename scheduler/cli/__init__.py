"""The command `railweave`: one verb a module, each loaded only when it is used."""
