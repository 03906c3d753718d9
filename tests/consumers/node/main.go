// Reads files of a node as the programs do that they are for, with these programs' own Go packages. A key that a program
// does not know is refused, although some programs would ignore it.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	flannel "github.com/flannel-io/flannel/pkg/subnet"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	proxy "k8s.io/kube-proxy/config/v1alpha1"
	credentials "k8s.io/kubelet/config/v1"
	credentialsalpha "k8s.io/kubelet/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"imagegen.example/consumers/hcn"
	"imagegen.example/consumers/hns"
	"imagegen.example/consumers/oldhns"
	"imagegen.example/consumers/winbridge"
	"imagegen.example/consumers/winoverlay"
)

type file struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

var readers = map[string]func([]byte) error{
	"cni":                 readNetwork,
	"kubelet":             readKubernetes,
	"credential-provider": readKubernetes,
	"kube-proxy":          readKubernetes,
	"flannel":             readFlannel,
	"hns-network":         readWindowsNetwork,
}

func main() {
	var files []file
	if err := json.NewDecoder(os.Stdin).Decode(&files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	refusals := make([]string, len(files))
	for at, file := range files {
		reader, ok := readers[file.Kind]
		if !ok {
			refusals[at] = fmt.Sprintf("unknown kind of file %q", file.Kind)
		} else if err := reader([]byte(file.Text)); err != nil {
			refusals[at] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(refusals); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func strict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func readKubernetes(data []byte) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubelet.AddToScheme, credentials.AddToScheme, credentialsalpha.AddToScheme, proxy.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	_, _, err := codecs.UniversalDeserializer().Decode(data, nil, nil)
	return err
}

// As containerd does it; then each plugin of the list, as the plugin does it.
func readNetwork(data []byte) error {
	list, err := libcni.ConfListFromBytes(data)
	if err != nil {
		return err
	}
	for _, plugin := range list.Plugins {
		if err := readPlugin(plugin.Network.Type, plugin.Bytes); err != nil {
			return fmt.Errorf("%s: %w", plugin.Network.Type, err)
		}
	}
	return nil
}

// Plugins whose module is not on Go's proxy: only what every plugin has is checked.
var unreleased = []string{"azure-vnet", "calico"}

// The keys of flannel's own plugin, whose module is not on Go's proxy either, and what it adds to the configuration of the plugin that it starts.
type flannelPlugin struct {
	types.NetConf
	Delegate map[string]any `json:"delegate"`
}

func readPlugin(kind string, data []byte) error {
	switch kind {
	case "win-bridge", "win-overlay":
		return readWindowsPlugin(kind, data)
	case "flannel":
		var found flannelPlugin
		if err := strict(data, &found); err != nil {
			return err
		}
		kind, _ := found.Delegate["type"].(string)
		if kind != "win-bridge" && kind != "win-overlay" {
			return fmt.Errorf("flannel starts the plugin %q", kind)
		}
		delegate, err := json.Marshal(found.Delegate)
		if err != nil {
			return err
		}
		return readWindowsPlugin(kind, delegate)
	}
	if slices.Contains(unreleased, kind) {
		return nil
	}
	return fmt.Errorf("unknown plugin")
}

func readWindowsPlugin(kind string, data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return err
	}
	allocates := keys["ipam"]
	if allocates != nil {
		if _, _, err := allocator.LoadIPAMConfig(data, ""); err != nil {
			return err
		}
	}
	// The structure of IPAM is the IPAM plugin's.
	delete(keys, "ipam")
	rest, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	found, err := readPluginKeys(kind, rest)
	if err != nil {
		return err
	}
	for _, policy := range found.Policies {
		if err := readPolicy(found.ApiVersion, policy); err != nil {
			return err
		}
	}
	return nil
}

func readPluginKeys(kind string, data []byte) (hns.NetConf, error) {
	if kind == "win-overlay" {
		var found winoverlay.NetConf
		err := strict(data, &found)
		return found.NetConf, err
	}
	var found winbridge.NetConf
	err := strict(data, &found)
	return found.NetConf, err
}

// Windows' structures of a policy, of its API for networks (2) and of the older one (1).
func readPolicy(version int, policy hns.Policy) error {
	if policy.Name != "EndpointPolicy" {
		return fmt.Errorf("unknown policy %q", policy.Name)
	}
	if version != 2 {
		return readOldPolicy(policy.Value)
	}
	var found hcn.EndpointPolicy
	if err := strict(policy.Value, &found); err != nil {
		return err
	}
	settings := map[hcn.EndpointPolicyType]any{
		hcn.OutBoundNAT: &hcn.OutboundNatPolicySetting{},
		hcn.SDNRoute:    &hcn.SDNRoutePolicySetting{},
		// OVN-Kubernetes names the address of the node.
		hcn.NetworkProviderAddress: &hcn.ProviderAddressEndpointPolicySetting{},
	}[found.Type]
	if settings == nil {
		return fmt.Errorf("unknown policy %q", found.Type)
	}
	return strict(found.Settings, settings)
}

func readOldPolicy(data []byte) error {
	var head struct{ Type string }
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	settings := map[string]any{
		string(oldhns.OutboundNat): &oldhns.OutboundNatPolicy{},
		string(oldhns.Route):       &oldhns.RoutePolicy{},
	}[head.Type]
	if settings == nil {
		return fmt.Errorf("unknown policy %q", head.Type)
	}
	return strict(data, settings)
}

// The network that a plugin expects: a request to Windows.
func readWindowsNetwork(data []byte) error {
	var found oldhns.HNSNetwork
	if err := strict(data, &found); err != nil {
		return err
	}
	for _, subnet := range found.Subnets {
		for _, policy := range subnet.Policies {
			if err := strict(policy, &oldhns.VsidPolicy{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// The sources of flanneld's back ends. On Windows they read their keys into a structure inside a function.
//
//go:embed backends
var backends embed.FS

// Linux and Windows nodes read the same file.
func readFlannel(data []byte) error {
	var found flannel.Config
	if err := strict(data, &found); err != nil {
		return err
	}
	parsed, err := flannel.ParseConfig(string(data))
	if err != nil {
		return err
	}
	if err := flannel.CheckNetworkConfig(parsed); err != nil {
		return err
	}
	var keys map[string]any
	if err := json.Unmarshal(parsed.Backend, &keys); err != nil {
		return err
	}
	known, err := backendKeys(parsed.BackendType)
	if err != nil {
		return err
	}
	for key := range keys {
		if !slices.Contains(known, key) {
			return fmt.Errorf("unknown key %q of the back end %s (known: %s)", key, parsed.BackendType, strings.Join(known, ", "))
		}
	}
	return nil
}

func backendKeys(name string) ([]string, error) {
	keys := []string{"Type"}
	files, err := fs.Glob(backends, path.Join("backends", name+"*"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("flanneld has no back end %q on Windows", name)
	}
	for _, file := range files {
		source, err := backends.ReadFile(file)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(tree, func(node ast.Node) bool {
			var found ast.Expr
			switch node := node.(type) {
			case *ast.CompositeLit:
				found = node.Type
			case *ast.TypeSpec:
				if node.Name.Name == "VXLANConfig" {
					found = node.Type
				}
			}
			if structure, ok := found.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					keys = append(keys, field.Names[0].Name)
				}
			}
			return true
		})
	}
	return keys, nil
}
