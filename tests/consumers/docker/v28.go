package main

import (
	"encoding/json"

	"github.com/docker/docker/daemon/config"
)

// On Windows the daemon has the common keys and no others.
func readDaemon(decoder *json.Decoder) error {
	var found config.CommonConfig
	if err := decoder.Decode(&found); err != nil {
		return err
	}
	return config.Validate(&config.Config{CommonConfig: found})
}
