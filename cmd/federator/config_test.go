package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/test/clitest"
)

func TestConfig_ErrorsNameTheLine(t *testing.T) {
	for _, test := range []struct {
		name string
		yaml string
		want []string // whole error lines, the file's path written FILE
	}{
		{"unknown key", "parallelSyncs: 3\nparalelSyncs: 4\n", []string{`FILE:2: unknown key "paralelSyncs"`}},
		{"unknown key below", "log:\n  level: info\n  colour: red\n", []string{`FILE:3: unknown key "colour"`}},
		{"unknown key of a rule", "kinds:\n- kind: Pod\n  label: a=b\n", []string{`FILE:3: unknown key "label"`}},
		{"wrong type", "parallelSyncs: many\n", []string{`FILE:1: "many" is a string, not a whole number`}},
		{"number as duration", "giveUpAfter: 30\n", []string{`FILE:1: "30" is a whole number, not a duration such as "30s"`}},
		{"list for mapping", "log:\n- level\n", []string{`FILE:2: this is a list, not a mapping`}},
		{"several at once", "parallelSyncs: x\nnope: 1\nkeepSecretValues: 7\n", []string{
			`FILE:1: "x" is a string, not a whole number`, `FILE:2: unknown key "nope"`, `FILE:3: "7" is a whole number, not true or false`,
		}},
		{"word for a switch", "metrics:\n  perScope: kinds\n", []string{`FILE:2: "kinds" is a string, not true or false`}},
		{"duplicate key", "parallelSyncs: 1\nparallelSyncs: 2\n", []string{`FILE:2: mapping key "parallelSyncs" already defined at line 1`}},
		{"syntax", "log: {\n", []string{`FILE:1: did not find expected node content`}},
		{"two documents", "parallelSyncs: 1\n---\nparallelSyncs: 2\n", []string{`FILE: more than one YAML document`}},
		{"audits", `sources: {contexts: {names: [a]}}
audit:
  interval: 1m
  firstTier: 2m
  requestsPerSecond: 0
  bytesPerSecond: -1
  fleetRequestsPerSecond: -0.5
  sample: -1
`, []string{
			`FILE:4: audit.firstTier: is 2m0s, must not be longer than audit.interval, 1m0s`,
			`FILE:5: audit.requestsPerSecond: is 0, must be a number above 0`,
			`FILE:6: audit.bytesPerSecond: is -1, must be above 0`,
			`FILE:7: audit.fleetRequestsPerSecond: is -0.5, must be a number above 0`,
			`FILE:8: audit.sample: is -1, must not be negative`,
		}},
		{"audits as often as no number says", "sources: {contexts: {names: [a]}}\naudit:\n  requestsPerSecond: .nan\n  fleetRequestsPerSecond: .inf\n", []string{
			`FILE:3: audit.requestsPerSecond: is NaN, must be a number above 0`,
			`FILE:4: audit.fleetRequestsPerSecond: is +Inf, must be a number above 0`,
		}},
		{"agents", `sources: {clusterAPI: {}}
agents:
  listen: "9443"
  hosts: [a, ""]
  certificateLife: 1m
`, []string{
			`FILE:5: agents.certificateLife: is 1m0s, must be at least 10m0s and at most 720h0m0s`,
			`FILE:3: agents.listen: "9443" is not an address such as ":9443"`,
			`FILE:4: agents.hosts: "" is neither a DNS name nor an IP address, without a port or anything else`,
			`FILE:2: agents: sources.members is required: agents are of Members`,
		}},
		{"shards", `sources: {contexts: {names: [a]}}
shards:
  count: 2
  replication: 3
  listen: "9444"
  name: A.b
  address: ":9444"
`, []string{
			`FILE:4: shards.replication: is 3, must be 1 or 2`,
			`FILE:4: shards.replication: is 3, more than the 2 of shards.count`,
			`FILE:2: shards: a hub is required, on which the processes agree: a source such as sources.clusterAPI`,
			`FILE:5: shards.listen: "9444" is not an address such as ":9444"`,
			`FILE:6: shards.name: "A.b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`FILE:7: shards.address: ":9444" is not a host and a port`,
		}},
		{"shards that are no number of processes", "sources: {contexts: {names: [a]}}\nshards:\n  count: 0\n  replication: 0\n", []string{
			`FILE:3: shards.count: is 0, must be at least 1 and at most 100`, `FILE:4: shards.replication: is 0, must be 1 or 2`,
		}},
		{"sources of a hub", `sources:
  clusterAPI: {namespaces: [fleet, ""]}
  members: {namespaces: [""]}
  argoCD: {}
  managedClusters:
    proxyURL: https://user:hunter2@proxy:9092
  clusterProfiles: {namespaces: [a]}
`, []string{
			`FILE:2: sources.clusterAPI.namespaces: a namespace must not be empty; leave the list out for all namespaces`,
			`FILE:3: sources.members.namespaces: a namespace must not be empty; leave the list out for all namespaces`,
			`FILE:4: sources.argoCD.namespaces: at least one is required: federator does not read the Secrets of others`,
			`FILE:6: sources.managedClusters.proxyURL: is not a URL such as https://host:9092`,
			`FILE:5: sources.managedClusters.caFile: is required`,
			`FILE:7: sources.clusterProfiles.providersFile: is required: access providers are programs, which only federator's own configuration may name`,
		}},
		{"federators", `sources:
  federators:
  - name: eu
    server: https://u:hunter2@eu.example
    caFile: ca.crt
  - {name: eu, kubeconfig: eu.kubeconfig, tokenFile: token}
  - {name: context, kubeconfig: eu.kubeconfig}
  - {name: a/b, kubeconfig: eu.kubeconfig}
  - {name: hub, kubeconfig: hub.kubeconfig}
  hub: {enabled: true}
`, []string{
			`FILE:4: sources.federators[0].server: is not a URL such as https://host:8443`,
			`FILE:3: sources.federators[0].tokenFile: is required`,
			`FILE:6: sources.federators[1].name: "eu" is given twice`,
			`FILE:6: sources.federators[1].kubeconfig: has what server, caFile and tokenFile say: set it or them`,
			`FILE:7: sources.federators[2].name: "context" is not a DNS label such as eu, or one that members of other sources have`,
			`FILE:8: sources.federators[3].name: "a/b" is not a DNS label such as eu, or one that members of other sources have`,
			`FILE:9: sources.federators[4].name: "hub" is the first half of sources.hub.name`,
		}},
		{"traces", `sources: {contexts: {names: [a]}}
traces:
  endpoint: collector
  sampling: 1.5
  slow: -1s
  insecure: true
  caFile: ca.crt
  headersFile: headers
`, []string{
			`FILE:4: traces.sampling: is 1.5, must be between 0 and 1`,
			`FILE:5: traces.slow: is -1s, must not be negative`,
			`FILE:7: traces.caFile: has no effect where nothing is encrypted`,
			`FILE:3: traces.endpoint: "collector" is not a host and a port, such as collector.monitoring:4317`,
			`FILE:8: traces.headersFile: cannot be sent unencrypted`,
		}},
		{"meaning, several at once", `# comment
kinds:
- kind: Pod
  labels: "a in"
- fields: "=="
parallelSyncs: -1
giveUpAfter: 0s
log:
  level: loud
  format: xml
network:
  allow:
  - 127.0.0.0/8
  - nonsense
listen:
  admin: 0.0.0.0:8081
held:
- kind: Pod
sources:
  contexts: {}
  hub: {enabled: true, name: local}
index:
  fields:
    Pod: [spec..nodeName]
members: {transport: carrier-pigeon}
`, []string{
			`FILE:25: members.transport: "carrier-pigeon" is not http2 or stock`,
			`FILE:20: sources.contexts.names: at least one context is required`,
			`FILE:21: sources.hub.name: "local" is not of the form <namespace>/<name>`,
			`FILE:4: kinds[0].labels: unable to parse requirement: found '' expected: '('`,
			`FILE:5: kinds[1].kind is required`,
			`FILE:18: held[0]: kind and version (without group) are required`,
			`FILE:24: index.fields.Pod: "spec..nodeName" is not a dotted path`,
			`FILE:6: parallelSyncs: is -1, must be above 0`,
			`FILE:7: giveUpAfter: is 0s, must be above 0`,
			`FILE:16: listen.admin: "0.0.0.0:8081" is not a loopback address such as "127.0.0.1:8081"`,
			`FILE:14: network.allow[1]: "nonsense" is not a prefix such as "127.0.0.0/8"`,
			`FILE:9: log.level: "loud" is not debug, info, warn or error`,
			`FILE:10: log.format: "xml" is not text or json`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := clitest.WriteFile(t, "config.yaml", test.yaml)
			_, err := command(t, "serve", "--config", path)
			if err == nil {
				t.Fatal("the configuration was accepted")
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), path, "FILE"), "\n")
			for _, want := range test.want {
				if !slices.Contains(got, want) {
					t.Errorf("no line %q", want)
				}
			}
			if len(got) != len(test.want) || t.Failed() {
				t.Errorf("%d lines, want %d:\n%s", len(got), len(test.want), strings.Join(got, "\n"))
			}
		})
	}
}

func TestConfig_ErrorsOfFlagsNameTheKey(t *testing.T) {
	_, err := command(t, "serve", "--contexts", "a", "--parallel-syncs", "-2", "--log-level", "x")
	if err == nil || err.Error() != "parallelSyncs: is -2, must be above 0\nlog.level: \"x\" is not debug, info, warn or error" {
		t.Errorf("got %v", err)
	}
}

func TestConfig_FlagsOverrideTheFile(t *testing.T) {
	path := clitest.WriteFile(t, "config.yaml", "parallelSyncs: 3\ngiveUpAfter: 9s\nindex: {fields: {Node: [spec.podCIDR]}}\n"+
		"sources: {contexts: {path: a-file, names: [x]}}\n")
	out, err := command(t, "serve", "--config", path, "--print-config", "--parallel-syncs", "7",
		"--contexts", "a,b", "--kinds", "Pod,Deployment.apps", "--listen", "127.0.0.1:0", "--admin", "", "--log-format", "json")
	if err != nil {
		t.Fatal(err)
	}
	printed := clitest.WriteFile(t, "printed.yaml", out)
	var again config.Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	again.Register(fs)
	if err := fs.Parse([]string{"--config", printed}); err != nil {
		t.Fatal(err)
	}
	cfg, err := again.Load(fs, nil)
	if err != nil {
		t.Fatalf("what --print-config writes cannot be read: %v", err)
	}
	if cfg.ParallelSyncs != 7 || cfg.GiveUpAfter.String() != "9s" || cfg.Listen.Admin != "" || cfg.Listen.Serve != "127.0.0.1:0" || cfg.Log.Format != "json" {
		t.Errorf("got %+v", cfg)
	}
	if c := cfg.Sources.Contexts; c == nil || c.Path != "a-file" || !slices.Equal(c.Names, []string{"a", "b"}) || cfg.Sources.ClusterAPI != nil {
		t.Errorf("sources: %+v", cfg.Sources)
	}
	if len(cfg.Kinds) != 2 || cfg.Kinds[0].Kind != "Deployment.apps" || cfg.Kinds[1].Kind != "Pod" {
		t.Errorf("kinds: %+v", cfg.Kinds)
	}
	if cfg.Index.Fields["Node"] == nil || cfg.Index.Fields["Pod"] == nil {
		t.Errorf("fields: %v", cfg.Index.Fields)
	}
}

func TestPrintConfig_DocumentsEveryKey(t *testing.T) {
	out, err := command(t, "serve", "--print-config", "--contexts", "a", "--hub-kubeconfig", "f")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines {
		key, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(key, "#") || strings.HasPrefix(key, "-") || key == "Pod" || key == "Event" {
			continue
		}
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
			t.Errorf("no comment above line %d: %q", i+1, line)
		}
	}
}

func TestServe_NamesAMissingConfigOrHub(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := command(t, "serve", "--config", path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		t.Skip("in a pod there are in-cluster credentials")
	}
	if _, err := command(t, "serve", "--listen", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "--contexts") {
		t.Errorf("got %v, want an error that names --contexts", err)
	}
}

func TestCommand_RejectsUnknownArguments(t *testing.T) {
	for _, args := range [][]string{
		{"frobnicate"},
		{"serve", "x"},
		{"serve", "--nope"},
		{"members", "a", "b"},
		{"members", "-o", "xml"},
		{"members", "--state", "Gone"},
		{"members", "-l", "a in"},
		{"version", "-o", "xml"},
		{"members", "--server", "ftp://x"},
		{"members", "--server", "http://127.0.0.1:1", "--contexts", "a"},
	} {
		if out, err := command(t, args...); err == nil {
			t.Errorf("federator %s: no error, printed %q", strings.Join(args, " "), out)
		}
	}
}
