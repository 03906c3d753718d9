"""AWS: AMIs built in one region and copied to others."""
