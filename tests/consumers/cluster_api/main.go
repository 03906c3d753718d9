// Writes the user data of a node as Cluster API's kubeadm bootstrap provider of this version does. It is built inside
// the provider's own module: the package that writes is internal.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/internal/cloudinit"
)

type input struct {
	// The version of the node, such as 1.21.14.
	Kubernetes string `json:"kubernetes"`
	// A KubeadmConfigSpec.
	Spec spec `json:"spec"`
}

func main() {
	text, err := write()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout.Write(text)
}

func write() ([]byte, error) {
	var asked input
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		return nil, err
	}
	configuration, data, err := prepare(asked)
	if err != nil {
		return nil, err
	}
	return cloudinit.NewNode(&cloudinit.NodeInput{BaseUserData: data, JoinConfiguration: configuration})
}

// The provider writes the flag of kubeadm from a number.
func verbosity(level *int32) string {
	if level == nil {
		return ""
	}
	return fmt.Sprintf("--v %d", *level)
}
