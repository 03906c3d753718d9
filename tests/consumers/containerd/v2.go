package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	hosts "github.com/containerd/containerd/v2/core/remotes/docker/config"
	cri "github.com/containerd/containerd/v2/internal/cri/config"
	"github.com/pelletier/go-toml/v2"
	"github.com/sirupsen/logrus"

	runhcs "github.com/Microsoft/hcsshim/cmd/containerd-shim-runhcs-v1/options"
)

func silence(to io.Writer) { logrus.SetOutput(to) }

func strict(data []byte, into any) error {
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into)
	if missing, ok := err.(*toml.StrictMissingError); ok {
		var keys []string
		for _, one := range missing.Errors {
			keys = append(keys, strings.Join(one.Key(), "."))
		}
		return fmt.Errorf("unknown keys: %s", strings.Join(keys, ", "))
	}
	return err
}

func readConfig(ctx context.Context, data []byte) error {
	var found config.Config
	if err := strict(data, &found); err != nil {
		return err
	}
	if err := found.ValidateVersion(); err != nil {
		return err
	}
	for id, settings := range found.Plugins {
		section, err := toml.Marshal(settings)
		if err != nil {
			return err
		}
		if err := readPlugin(ctx, id, section); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func readPlugin(ctx context.Context, id string, section []byte) error {
	switch id {
	case "io.containerd.cri.v1.images":
		images := cri.DefaultImageConfig()
		if err := strict(section, &images); err != nil {
			return err
		}
		_, err := cri.ValidateImageConfig(ctx, &images)
		return err
	case "io.containerd.cri.v1.runtime":
		runtime := cri.DefaultRuntimeConfig()
		runtime.DefaultRuntimeName = defaultHandler
		runtime.Runtimes = map[string]cri.Runtime{defaultHandler: {Type: "io.containerd.runhcs.v1"}}
		if err := strict(section, &runtime); err != nil {
			return err
		}
		for name, handler := range runtime.Runtimes {
			if handler.Type != "io.containerd.runhcs.v1" || handler.Options == nil {
				continue
			}
			options, err := toml.Marshal(handler.Options)
			if err != nil {
				return err
			}
			if err := strict(options, &runhcs.Options{}); err != nil {
				return fmt.Errorf("options of %s: %w", name, err)
			}
		}
		_, err := cri.ValidateRuntimeConfig(ctx, &runtime)
		return err
	}
	return fmt.Errorf("unknown plugin")
}

func registryHosts(folder string) (int, error) {
	options := hosts.HostOptions{HostDir: func(string) (string, error) { return folder, nil }}
	var found []docker.RegistryHost
	found, err := hosts.ConfigureHosts(context.Background(), options)("registry.example.com")
	return len(found), err
}
