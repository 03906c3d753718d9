"""The cluster that a booted machine joins, and kubeadm and kubelet on the model machine.

api_server.Cluster(version)             the API server, with the CA, token and nodes of a cluster; a context manager
kubelet.Kubelet(machine, cluster)       makes the machine's service kubelet run
kubeadm.make_kubeadm(cluster)           the program kubeadm.exe
"""
