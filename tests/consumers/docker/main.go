// Reads daemon.json as Docker of this version does. It is built inside Docker's own module: as a dependency it would take
// other versions of what it needs.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type file struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

func main() {
	var files []file
	if err := json.NewDecoder(os.Stdin).Decode(&files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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
	if asked.Kind != "docker" {
		return fmt.Errorf("unknown kind of file %q", asked.Kind)
	}
	decoder := json.NewDecoder(strings.NewReader(asked.Text))
	decoder.DisallowUnknownFields()
	return readDaemon(decoder)
}
