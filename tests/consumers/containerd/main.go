// Reads containerd's files as containerd of this version does, and refuses what containerd would only ignore. It is
// built inside containerd's own module: the types of the CRI plugins are internal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

type file struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Windows' default, which the system that this runs on does not have.
const defaultHandler = "runhcs-wcow-process"

func main() {
	var files []file
	if err := json.NewDecoder(os.Stdin).Decode(&files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	silence(io.Discard)
	refusals := make([]string, len(files))
	for at, file := range files {
		if err := read(file); err != nil {
			refusals[at] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(refusals); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(asked file) error {
	switch asked.Kind {
	case "containerd":
		return readConfig(context.Background(), []byte(asked.Text))
	case "containerd-hosts":
		return readHosts(asked.Text)
	}
	return fmt.Errorf("unknown kind of file %q", asked.Kind)
}

// containerd looks for this file in a folder for each registry.
func readHosts(text string) error {
	folder, err := os.MkdirTemp("", "hosts")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(text), 0o600); err != nil {
		return err
	}
	hosts, err := registryHosts(folder)
	if err != nil {
		return err
	}
	// The registry itself is the last.
	if hosts < 2 {
		return fmt.Errorf("the file names no mirror")
	}
	return nil
}
