package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestVersion_PrintsVersions(t *testing.T) {
	out, err := command(t, "version")
	if err != nil || !strings.Contains(out, "federator   devel\n") || !strings.Contains(out, "kubernetes  v1.") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = command(t, "version", "-o", "json")
	var v versionInfo
	if err != nil || json.Unmarshal([]byte(out), &v) != nil || v != readVersion() {
		t.Errorf("%v:\n%s", err, out)
	}
}
