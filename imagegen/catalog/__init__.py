"""Facts as data: each file says where its rows come from and when they were read."""
