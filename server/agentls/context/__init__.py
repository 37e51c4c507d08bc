"""What an agent is told beside what a person says: producers, and the snapshots that are made of them."""
