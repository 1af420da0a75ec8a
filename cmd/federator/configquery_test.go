package main

import (
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestQueryConfig_ErrorsNameTheLine(t *testing.T) {
	const noHub = "sources:\n  contexts: {names: [a]}\nquery:\n  "
	const hub = "sources:\n  hub: {enabled: true, name: fleet/hub}\nquery:\n  "
	for _, test := range []struct{ yaml, want string }{
		{noHub + "listen: 0.0.0.0:8443", `FILE:4: query.listen: "0.0.0.0:8443" is not a loopback address; without a hub callers cannot be authorized`},
		{hub + "listen: nonsense", `FILE:4: query.listen: "nonsense" is not an address such as ":8443"`},
		{hub + "kubeconfig: [a]", `FILE:4: `},
		{hub + "tls: {minVersion: \"1.1\"}", `FILE:4: query.tls.minVersion: "1.1" is not 1.2 or 1.3`},
		{hub + "tls: {certFile: a.pem}", `FILE:4: query.tls`},
		{hub + "tls: {keyFile: a.pem}", `FILE:4: query.tls`},
		{hub + "tls: {hosts: a}", `FILE:4: `},
		{hub + "audiences: []", `FILE:4: query.audiences`},
		{hub + "audiences: [\"\"]", `FILE:4: query.audiences`},
		{hub + "clientCAFile: [a]", `FILE:4: `},
		{hub + "askMembers: {userPrefix: \"system:x\"}", `FILE:4: query.askMembers.userPrefix: `},
		{hub + "allowTTL: 31s", `FILE:4: query.allowTTL: is 31s, must be above 0 and at most 30s`},
		{hub + "denyTTL: 0s", `FILE:4: query.denyTTL: is 0s, must be above 0 and at most 30s`},
		{hub + "priority: many", `FILE:4: `},
		{hub + "maxInFlight: 0", `FILE:4: query.maxInFlight: is 0, must be above 0`},
		{hub + "maxWatches: -1", `FILE:4: query.maxWatches: is -1, must be above 0`},
		{hub + "timeout: 2h", `FILE:4: query.timeout: is 2h0m0s, must be above 0 and at most 1h0m0s`},
		{hub + "audit: {policyFile: a}", `FILE:4: query.audit`},
		{hub + "audit: {logFile: a}", `FILE:4: query.audit`},
		{hub + "audit: {maxBytes: 0}", `FILE:4: query.audit.maxBytes: is 0, must be above 0`},
		{hub + "audit: {maxBackups: -1}", `FILE:4: query.audit.maxBackups: is -1, must be above 0`},
		{hub + "audit: {maxAge: -1s}", `FILE:4: query.audit.maxAge: is -1s, must be at least 0`},
		{hub + "mcp: maybe", `FILE:4: "maybe" is a string, not true or false`},
		{hub + "colour: red", `FILE:4: unknown key "colour"`},
	} {
		path := clitest.WriteFile(t, "config.yaml", test.yaml+"\n")
		_, err := command(t, "serve", "--config", path, "--print-config")
		if err == nil {
			t.Errorf("%s: taken", test.yaml)
			continue
		}
		got := strings.Split(strings.ReplaceAll(err.Error(), path, "FILE"), "\n")
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, test.want) }) {
			t.Errorf("%s: got %q, want %q", test.yaml, got, test.want)
		}
	}
}

func TestPrintConfig_ShowsTheQueryAPI(t *testing.T) {
	path := clitest.WriteFile(t, "config.yaml", "sources:\n  contexts: {names: [a]}\n")
	out, err := command(t, "serve", "--config", path, "--print-config")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"query:\n", "listen: 127.0.0.1:8443\n", "allowTTL: 20s\n", "denyTTL: 10s\n", "maxInFlight: 400\n", "maxWatches: 10000\n",
		"audiences:", "clientCAFile:", "certFile:", "keyFile:", "minVersion:", "policyFile:", "logFile:", "maxBytes: 104857600\n", "maxBackups: 10\n", "maxAge: 0s\n", "timeout: 1m0s\n", "priority: false\n", "mcp: false\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
