package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/sim"
)

const violationPolicies = `# METADATA
# title: ConfigMaps have an owner
# custom: {severity: high, kinds: [ConfigMap]}
package acme.owner

violation contains {"msg": sprintf("%s has no owner", [input.ref.name])} if not input.object.metadata.labels.owner
`

const sharedNamePolicy = `# METADATA
# title: Names are of one member
# custom: {severity: low, kinds: [ConfigMap, Widget.example.com], subject: view.names}
package acme.names

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": sprintf("%s is in %d members", [input.key, count(input.entries)])} if count(input.entries) > 1
`

// wordsOf returns the words of a row, with an age of nothing.
func wordsOf(row string) string {
	words := strings.Fields(row)
	for i, w := range words {
		if _, err := time.ParseDuration(w); err == nil {
			words[i] = "0s"
		}
	}
	return strings.Join(words, " ")
}

// serveViolations serves membersWithViolations.
func serveViolations(t *testing.T) *running {
	t.Helper()
	_, args := membersWithViolations(t)
	r := start(t, args...)
	ready(t, r)
	return r
}

// membersWithViolations are two members whose ConfigMaps a to e have no owner, f has one, and
// only a is in both, and the arguments to serve them with.
func membersWithViolations(t *testing.T) (_ []*sim.Member, args []string) {
	t.Helper()
	members, kubeconfig := clitest.Fleet(t, 2)
	for n, names := range [][]string{{"a", "b", "c"}, {"a", "d", "e", "f"}} {
		for _, name := range names {
			meta := metav1.ObjectMeta{Namespace: "shop", Name: name}
			if name == "f" {
				meta.Labels = map[string]string{"owner": "ann"}
			}
			if err := members[n].Create(&corev1.ConfigMap{ObjectMeta: meta}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"owner.rego": violationPolicies, "names.rego": sharedNamePolicy} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return members, []string{"--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "Namespace,ConfigMap", "--policies", dir}
}

func TestViolations_AreQueried(t *testing.T) {
	r := serveViolations(t)
	a, err := (&queryclient.Flags{Kubeconfig: r.kubeconfig}).Client()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(query string) (*policyquery.ViolationList, error) {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := a.Get(t.Context(), "/query/v1/violations", values, "application/json")
		if err != nil {
			return nil, err
		}
		found := &policyquery.ViolationList{}
		return found, json.Unmarshal(body, found)
	}
	summary := func(found *policyquery.ViolationList) string {
		var all []string
		for _, i := range found.Items {
			all = append(all, fmt.Sprintf("%s %s%s%s", i.Policy, strings.TrimPrefix(i.Subject.Member, "context/member-"), i.Subject.Name, i.Subject.Key))
		}
		return strings.Join(all, ", ")
	}
	clitest.Eventually(t, "all policies are evaluated", func() error {
		found, err := ask("")
		if err != nil {
			return err
		}
		if got := summary(found); !found.Synced || got != "acme.names a, acme.owner 0a, acme.owner 0b, acme.owner 0c, acme.owner 1a, acme.owner 1d, acme.owner 1e" {
			return fmt.Errorf("found %q", got)
		}
		return nil
	})
	for query, want := range map[string]string{
		"policy=acme.names": "acme.names a",
		"severity=low":      "acme.names a",
		"member=context/member-1&package=acme.owner": "acme.owner 1a, acme.owner 1d, acme.owner 1e",
		"kind=Secret":            "",
		"namespace=shop&limit=2": "acme.owner 0a, acme.owner 0b",
		"exempt=true":            "",
		"state=Unknown":          "",
	} {
		if found, err := ask(query); err != nil || summary(found) != want {
			t.Errorf("%s: %+v, %v, want %q", query, found, err, want)
		}
	}
	var pages []string
	for next := ""; ; {
		found, err := ask("limit=3" + next)
		if err != nil {
			t.Fatal(err)
		}
		if pages = append(pages, summary(found)); found.Continue == "" {
			break
		}
		next = "&continue=" + found.Continue
	}
	if got := strings.Join(pages, " | "); got != "acme.names a, acme.owner 0a, acme.owner 0b | acme.owner 0c, acme.owner 1a, acme.owner 1d | acme.owner 1e" {
		t.Errorf("pages %q", got)
	}
	if found, err := ask("groupBy=policy&groupBy=member"); err != nil ||
		fmt.Sprint(found.Groups) != "[{[acme.owner context/member-0] 3 3 0 0 0} {[acme.owner context/member-1] 3 3 0 0 0} {[acme.names ] 1 1 0 0 0}]" || found.Items != nil {
		t.Errorf("groups %v, %v", found, err)
	}
	for query, says := range map[string]string{
		"colour=red": "colour", "limit=0": "limit", "limit=5001": "5000", "limit=1&limit=2": "more than once", "severity=bad": "critical", "state=x": "Unknown",
		"exempt=yes": "exempt", "groupBy=name": "groupBy", "continue=@": "continue", "continue=e30": "continue", "groupBy=a&groupBy=a&groupBy=a&groupBy=a&groupBy=a": "4 at most",
	} {
		_, err := ask(query)
		status, ok := err.(apierrors.APIStatus) //nolint:errorlint // as it came
		if !ok || status.Status().Code != 400 || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a 400 that says %q", query, err, says)
		}
	}
}

func TestViolations_ArePrinted(t *testing.T) {
	r := serveViolations(t)
	clitest.Eventually(t, "violations are printed", func() error {
		out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "--member", "context/member-0", "-n", "shop", "--policy", "acme.owner")
		if err != nil {
			return err
		}
		if lines := strings.Split(out, "\n"); len(lines) != 5 || wordsOf(lines[1]) != "acme.owner high context/member-0 ConfigMap shop/a Known 0s a has no owner" {
			return fmt.Errorf("printed %q", out)
		}
		return nil
	})
	for order, want := range map[string]string{"severity": "acme.owner high", "policy": "acme.names low"} {
		out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "--order-by", order)
		if lines := strings.Split(out, "\n"); err != nil || len(lines) < 8 || !strings.HasPrefix(wordsOf(lines[1]), want) {
			t.Errorf("by %s: printed %q, %v", order, out, err)
		}
	}
	out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "--by", "severity")
	if want := "high 6 6 0 low 1 1 0"; err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("printed %q, %v", out, err)
	}
	if out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "--severity", "critical"); err != nil || out != "" {
		t.Errorf("nothing is printed as %q, %v", out, err)
	}
	if out, err := command(t, "violations", "--kubeconfig", r.kubeconfig, "-o", "json", "--kind", "ConfigMap"); err != nil || !strings.Contains(out, `"acme.owner"`) || strings.Contains(out, "acme.names") {
		t.Errorf("printed %q, %v", out, err)
	}
}
