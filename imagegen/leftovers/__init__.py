"""What dead runs left in a cloud: judged by the journals of this machine and by the clock, then removed."""
