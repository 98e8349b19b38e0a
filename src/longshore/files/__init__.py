"""Files of filesets: found, stored, moved between machines, and put where programs read them.

Here live the bytes and the folders. Which versions there are, and who needs which blob, stores know
(`ports.file_store`); this room asks nobody but gateways, over HTTP. Nothing here follows a link.
"""
