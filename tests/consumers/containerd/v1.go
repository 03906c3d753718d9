package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	cri "github.com/containerd/containerd/pkg/cri/config"
	hosts "github.com/containerd/containerd/remotes/docker/config"
	"github.com/containerd/containerd/services/server/config"
	"github.com/pelletier/go-toml"
	"github.com/sirupsen/logrus"

	runhcs "github.com/Microsoft/hcsshim/cmd/containerd-shim-runhcs-v1/options"
)

func silence(to io.Writer) { logrus.SetOutput(to) }

func strict(data []byte, into any) error {
	return toml.NewDecoder(bytes.NewReader(data)).Strict(true).Decode(into)
}

func readConfig(ctx context.Context, data []byte) error {
	tree, err := toml.LoadBytes(data)
	if err != nil {
		return err
	}
	// The strict decoder takes the sections of plugins for unknown keys.
	sections, _ := tree.Get("plugins").(*toml.Tree)
	if err := tree.Delete("plugins"); err != nil && sections != nil {
		return err
	}
	rest, err := tree.Marshal()
	if err != nil {
		return err
	}
	var found config.Config
	if err := strict(rest, &found); err != nil {
		return err
	}
	if err := found.ValidateV2(); err != nil {
		return err
	}
	if sections == nil {
		return nil
	}
	for _, id := range sections.Keys() {
		section, ok := sections.GetPath([]string{id}).(*toml.Tree)
		if !ok {
			return fmt.Errorf("%s is no table", id)
		}
		data, err := section.Marshal()
		if err != nil {
			return err
		}
		if err := readPlugin(ctx, id, data); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func readPlugin(ctx context.Context, id string, section []byte) error {
	if id != "io.containerd.grpc.v1.cri" {
		return fmt.Errorf("unknown plugin")
	}
	settings := cri.DefaultConfig()
	settings.DefaultRuntimeName = defaultHandler
	settings.Runtimes = map[string]cri.Runtime{defaultHandler: {Type: "io.containerd.runhcs.v1"}}
	if err := strict(section, &settings); err != nil {
		return err
	}
	for name, handler := range settings.Runtimes {
		if handler.Type != "io.containerd.runhcs.v1" || handler.Options == nil {
			continue
		}
		tree, err := toml.TreeFromMap(handler.Options)
		if err != nil {
			return err
		}
		options, err := tree.Marshal()
		if err != nil {
			return err
		}
		if err := strict(options, &runhcs.Options{}); err != nil {
			return fmt.Errorf("options of %s: %w", name, err)
		}
	}
	_, err := cri.ValidatePluginConfig(ctx, &settings)
	return err
}

func registryHosts(folder string) (int, error) {
	options := hosts.HostOptions{HostDir: func(string) (string, error) { return folder, nil }}
	found, err := hosts.ConfigureHosts(context.Background(), options)("registry.example.com")
	return len(found), err
}
