"""What the values of a document say about each other: rules V024-V323 of the metadata standard, section 12."""
