package config

import (
	"strings"
	"testing"
)

// TestAttack_ProxyURLIsNotRepeated: a URL with a password is refused, and not written to the log.
func TestAttack_ProxyURLIsNotRepeated(t *testing.T) {
	c := Config{Sources: Sources{ManagedClusters: &ManagedClusters{ProxyURL: "https://user:hunter2@proxy:9092", CAFile: "ca.crt"}}}
	var p problems
	c.validateSources(&p)
	for _, err := range p.errs {
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}
