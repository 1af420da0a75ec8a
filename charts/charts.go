// Package charts has what the binary and its Helm chart share: the admission policies of
// the hub. The chart installs them, and package admission compares them with those on the
// hub, so that neither can differ from the other.
//
// # Concurrency
//
// Admission may be called concurrently.
//
// # Trade-offs
//
// It is here because files can only be embedded from below.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed federator/admission/*.yaml
var admission embed.FS

// federatorUser is what stands for the name of federator's user in the manifests. It has
// to be one that no user has whom the hub authenticates by a service account's token.
const federatorUser = "'FEDERATOR'"

// Admission returns the manifests of the admission policies with their bindings, by name,
// for a hub on which federator has the given user name: YAML, two documents each. A name
// that cannot be written in CEL is an error.
func Admission(user string) (map[string]string, error) {
	if strings.ContainsAny(user, "'\\\n\r") || user == "" {
		return nil, fmt.Errorf("charts: the user name %q cannot be in an admission policy", user)
	}
	out := map[string]string{}
	files, err := fs.Glob(admission, "federator/admission/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := admission.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(path.Base(file), ".yaml") + ".federator.dev"
		out[name] = strings.ReplaceAll(string(text), federatorUser, "'"+user+"'")
	}
	return out, nil
}
