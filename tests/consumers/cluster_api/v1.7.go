package main

import (
	"github.com/blang/semver/v4"
	bootstrapv1 "sigs.k8s.io/cluster-api/bootstrap/kubeadm/api/v1beta1"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/internal/cloudinit"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/types"
)

type spec = bootstrapv1.KubeadmConfigSpec

func prepare(asked input) (string, cloudinit.BaseUserData, error) {
	data := cloudinit.BaseUserData{
		AdditionalFiles:     asked.Spec.Files,
		PreKubeadmCommands:  asked.Spec.PreKubeadmCommands,
		PostKubeadmCommands: asked.Spec.PostKubeadmCommands,
		Users:               asked.Spec.Users,
		KubeadmVerbosity:    verbosity(asked.Spec.Verbosity),
	}
	version, err := semver.Parse(asked.Kubernetes)
	if err != nil {
		return "", data, err
	}
	text, err := kubeadmtypes.MarshalJoinConfigurationForVersion(nil, asked.Spec.JoinConfiguration, version)
	return text, data, err
}
