// Command readme writes the README.md of a Helm chart from its Chart.yaml and the
// comments in its values.yaml, or checks that it is up to date.
//
//	readme --write charts/federator
//	readme --check charts/federator
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || args[0] != "--write" && args[0] != "--check" {
		return errors.New("usage: readme --write|--check CHART")
	}
	dir := args[1]
	text, err := generate(dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "README.md")
	if args[0] == "--write" {
		return os.WriteFile(file, text, 0o644)
	}
	is, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(is, text) {
		return fmt.Errorf("%s is not up to date; run `make fmt`", file)
	}
	return nil
}

const head = `# %[1]s

%[2]s

Generated from Chart.yaml and values.yaml by ` + "`make fmt`" + `; do not edit.

`

const valuesHead = `
## Values

| Value | Default | Description |
|---|---|---|
`

// installs say how each chart is installed.
var installs = map[string]string{"federator": installHub, "federator-agent": installAgent}

const installAgent = `## Install

The chart is for the cluster that federator does not reach, not for the hub. On the hub,
create a Member with an agent, and make a token for it:

` + "```sh" + `
kubectl apply -f - <<'END'
apiVersion: federator.dev/v1alpha1
kind: Member
metadata: {namespace: edge, name: shop-17}
spec: {agent: {}}
END
federator agent token edge/shop-17 > token
` + "```" + `

In the cluster:

` + "```sh" + `
kubectl create namespace federator-agent
kubectl --namespace federator-agent create secret generic federator-agent-token --from-file=token
helm install federator-agent charts/federator-agent --namespace federator-agent \
  --set image.repository=registry.example/federator \
  --set 'hubs={agents-0.example.com:9443,agents-1.example.com:9443}'
` + "```" + `

Requires Kubernetes %[2]s. Upgrade agents (version %[1]s) with federator or after it;
docs/agents.md says more.
`

const installHub = `## Install

The chart assumes no registry: build the image with the Dockerfile of the repository
and set image.repository. Set clusters.namespaces to the namespaces on the hub that
contain the Clusters: federator can read Secrets in these namespaces only.

` + "```sh" + `
docker build -t registry.example/federator:%[1]s .
docker push registry.example/federator:%[1]s
helm install federator charts/federator --namespace federator --create-namespace \
  --set image.repository=registry.example/federator --set 'clusters.namespaces={fleet}'
` + "```" + `

Requires Kubernetes %[2]s.

## Upgrade

Helm installs CRDs but neither upgrades nor deletes them. Apply the CRDs of the new
version first:

` + "```sh" + `
helm show crds charts/federator | kubectl apply --server-side --force-conflicts -f -
helm upgrade federator charts/federator --namespace federator --reset-then-reuse-values
` + "```" + `

If you provide no certificate, Helm generates one at the first install and keeps it. A
tool that only renders the chart would generate a new one each time: with such a tool,
set ` + "`query.tls.secretName` or `query.tls.certManager.enabled`" + `.
`

func generate(dir string) ([]byte, error) {
	var chart struct {
		Name, Description string
		AppVersion        string `yaml:"appVersion"`
		KubeVersion       string `yaml:"kubeVersion"`
	}
	if err := read(filepath.Join(dir, "Chart.yaml"), &chart); err != nil {
		return nil, err
	}
	var values yaml.Node
	if err := read(filepath.Join(dir, "values.yaml"), &values); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	install, known := installs[chart.Name]
	if !known {
		return nil, fmt.Errorf("nobody has said how chart %s is installed", chart.Name)
	}
	fmt.Fprintf(&b, head, chart.Name, chart.Description)
	fmt.Fprintf(&b, install, chart.AppVersion, strings.TrimSuffix(chart.KubeVersion, "-0"))
	b.WriteString(valuesHead)
	if len(values.Content) != 1 || values.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("values.yaml is not a mapping")
	}
	err := rows(&b, "", values.Content[0])
	return b.Bytes(), err
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// rows writes a line of the table for each value. A mapping whose keys have comments
// is a group of values, any other is a value.
func rows(b *bytes.Buffer, prefix string, m *yaml.Node) error {
	for i := 0; i < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := prefix + key.Value
		if key.HeadComment == "" {
			return fmt.Errorf("values.yaml:%d: %s has no comment", key.Line, name)
		}
		what := strings.ReplaceAll(strings.ReplaceAll(key.HeadComment, "# ", ""), "\n", " ")
		what = strings.ReplaceAll(what, "|", `\|`)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != "" {
			fmt.Fprintf(b, "| **`%s`** | | %s |\n", name, what)
			if err := rows(b, name+".", value); err != nil {
				return err
			}
			continue
		}
		var plain any
		if err := value.Decode(&plain); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		text, err := json.Marshal(plain)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, text, what)
	}
	return nil
}
