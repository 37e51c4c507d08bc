"""Files as the agent and its editors see them: open buffers over the disk, roots, ignore rules, bytes kept exact."""
