package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// every names the keys that are not printed unless they are set, so that they are.
const every = `sources:
  clusterAPI: {}
  members: {}
  argoCD: {namespaces: [argocd]}
  managedClusters: {proxyURL: "https://proxy.example:9092", caFile: ca.crt}
  clusterProfiles: {providersFile: providers.json}
  federators: [{name: eu, kubeconfig: eu.kubeconfig}]
  contexts: {names: [dev]}
  hub: {enabled: true}
query:
  askMembers: {userPrefix: "federator:"}
ui:
  oidc: {issuer: "https://login.example.com", clientID: federator}
`

// given are the values above: they are no defaults.
var given = map[string]string{
	"sources.hub.enabled": "`false`", "query.askMembers.userPrefix": "", "ui.oidc.issuer": "", "ui.oidc.clientID": "", "sources.contexts.names": "", "sources.federators": "",
	"sources.argoCD.namespaces": "", "sources.managedClusters.proxyURL": "", "sources.managedClusters.caFile": "", "sources.clusterProfiles.providersFile": "",
}

// configurationKeys has all keys of the configuration file.
func configurationKeys(t *testing.T, s *stage) string {
	file := filepath.Join(t.TempDir(), "federator.yaml")
	must(t, os.WriteFile(file, []byte(every), 0o600))
	var doc yaml.Node
	must(t, yaml.Unmarshal([]byte(s.output(t, "serve", "--config", file, "--print-config")), &doc))
	var out strings.Builder
	out.WriteString(`# Configuration

Generated from ` + "`federator serve --print-config`" + ` by ` + "`make docs`" + `; do not edit.

` + "`federator serve --config FILE`" + ` reads a YAML file with these keys. Keys that are not
known and invalid values are errors, which name the line. Flags override the file.

| Key | Default | Description |
|---|---|---|
`)
	var rows func(prefix string, m *yaml.Node)
	rows = func(prefix string, m *yaml.Node) {
		for i := 0; i < len(m.Content); i += 2 {
			key, value := m.Content[i], m.Content[i+1]
			name, what := prefix+key.Value, strings.ReplaceAll(key.HeadComment, "# ", "")
			if what == "" {
				t.Errorf("%s has no description", name)
			}
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != "" {
				fmt.Fprintf(&out, "| **`%s`** | | %s |\n", name, cell(what))
				rows(name+".", value)
				continue
			}
			var plain any
			must(t, value.Decode(&plain))
			text, err := json.Marshal(plain)
			must(t, err)
			is, ok := given[name]
			if !ok {
				is = "`" + string(text) + "`"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, is, cell(what))
		}
	}
	rows("", doc.Content[0])
	return out.String()
}
