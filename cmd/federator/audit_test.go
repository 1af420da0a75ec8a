package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/clitest"
)

// TestAudit_PrintsWhatItCompared asks a server for audits of all, of a member and of a kind.
func TestAudit_PrintsWhatItCompared(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	clitest.CreateConfigMaps(t, members[0], "one", "two")
	file := clitest.WriteFile(t, "federator.yaml", "audit: {interval: 1h, firstTier: 1h, requestsPerSecond: 0.5, bytesPerSecond: 1000000, fleetRequestsPerSecond: 10.5, sample: 1}\n")
	r := start(t, "--config", file, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap,Namespace")
	ready(t, r)
	out, err := command(t, "audit", "--server", r.admin)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var rows []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		rows = append(rows, strings.Join(strings.Fields(line)[:4], " "))
	}
	if got := strings.Join(rows, ", "); got != "context/member-0 ConfigMap - equal, context/member-0 Namespace - equal, context/member-1 ConfigMap - equal, context/member-1 Namespace - equal" {
		t.Errorf("printed:\n%s", out)
	}
	out, err = command(t, "audit", "member-0", "ConfigMap", "--server", r.admin, "-o", "json")
	var result clusterinformers.AuditResult
	if err == nil {
		err = json.Unmarshal([]byte(out), &result)
	}
	if err != nil || result.Member != "context/member-0" || result.Kind != "ConfigMap" || result.Objects != 2 || result.Bodies != 1 || result.Requests != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := command(t, "audit", "member-0", "Pod", "--server", r.admin); err == nil || err.Error() != `kind "Pod": nothing is held of it` {
		t.Errorf("a kind that is not held: %v\n%s", err, out)
	}
	members[1].Cut()
	clitest.Eventually(t, "a member that is away is not compared", func() error {
		out, err := command(t, "audit", "member-1", "--server", r.admin)
		if clitest.ExitCode(err) != exit.CodeUnknown || !strings.Contains(out, "notSynced") {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	for _, bad := range [][]string{{"nobody"}, {"a", "b", "c"}, {"-o", "xml"}, {"--server", "ftp://x"}} {
		args := append([]string{"audit", "--server", r.admin}, bad...)
		if out, err := command(t, args...); err == nil {
			t.Errorf("federator %v: no error, printed %q", args, out)
		}
	}
	for path, want := range map[string]int{"/audits?nonsense=x": http.StatusBadRequest} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	mustGet(t, r.admin+"/audits", http.StatusMethodNotAllowed)
}
