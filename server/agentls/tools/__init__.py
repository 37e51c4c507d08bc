"""Tools: what the model can ask to be done, one file each."""
