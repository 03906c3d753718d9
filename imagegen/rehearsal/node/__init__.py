"""A join taken as run: the files that kubeadm of a minor leaves, and the flags and gates that kubelet of it knows."""
