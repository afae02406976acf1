"""Two small models of sound from wheels of the package index, as packages: a transcriber and a voice detector."""
