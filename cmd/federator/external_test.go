package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/clitest"
)

// externalPolicy gives ConfigMaps the tier that a file has for their name, while a ConfigMap of the hub says that they may be, and a
// server has the tier.
const externalPolicy = `# METADATA
# title: Tiers are those of the list
# description: A ConfigMap has the tier that the list of data.fleet.external has for its name.
# custom:
#   severity: medium
#   kinds: [ConfigMap]
#   remedies: [{action: patch, kind: ConfigMap}]
package acme.tier

violation contains {
	"msg": sprintf("tier is not %s", [tier]),
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": tier}}}},
} if {
	tier := data.fleet.external.git.tiers[input.object.metadata.name]
	data.fleet.external.git.gate.open
	data.fleet.external.git.catalog[tier]
	object.get(input.object.metadata.labels, "tier", "") != tier
}
`

const externalTest = `package acme.tier_test

import data.acme.tier

external := {"git": {"tiers": {"web": "gold"}, "gate": {"open": true}, "catalog": {"gold": true}}}

web := {"object": {"metadata": {"name": "web", "labels": {}}}}

test_tier if count(tier.violation) == 1 with input as web with data.fleet.external as external

test_closed if {
	count(tier.violation) == 0 with input as web
		with data.fleet.external as external
		with data.fleet.external.git.gate as {"open": false}
}
`

const externalFleet = `name: what is not there, and what is
external:
  git: {tiers: {web: gold}, gate: {open: true}, catalog: {gold: true}}
members:
- name: fleet/a
  scopes: {ConfigMap: Synced}
  objects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default, labels: {tier: silver}}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: db, namespace: default}}
expect:
- {subject: fleet/a ConfigMap default/web, violations: [tier is not gold]}
---
name: a source that does not exist is not one without documents
external: {}
members:
- name: fleet/a
  scopes: {ConfigMap: Synced}
  objects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}}
expect:
- {subject: fleet/a ConfigMap default/web, state: Unknown}
`

const externalReaders = `apiVersion: v1
kind: ServiceAccount
metadata: {name: ann, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ben, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-members}
rules:
- {apiGroups: [members.federator.dev], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-members}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-members}
subjects: [{kind: ServiceAccount, name: ann, namespace: default}, {kind: ServiceAccount, name: ben, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-source-git}
rules:
- {apiGroups: [federator.dev], resources: [policysources], resourceNames: [git], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann-reads-source-git}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-source-git}
subjects: [{kind: ServiceAccount, name: ann, namespace: default}]
`

// catalog is a server with a CA of its own that wants a token.
type catalog struct {
	*httptest.Server
	body   atomic.Pointer[string]
	broken atomic.Bool
	denied atomic.Int64
}

func newCatalog(t *testing.T) *catalog {
	t.Helper()
	c := &catalog{}
	c.set(`{"gold": true}`)
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer t0ken":
			c.denied.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		case c.broken.Load():
			w.WriteHeader(http.StatusBadGateway)
		default:
			_, _ = io.WriteString(w, *c.body.Load())
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *catalog) set(body string) { c.body.Store(&body) }

func (c *catalog) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
}

func (j *job) gate(data string) { j.gateLabelled(data, "true") }

func (j *job) gateLabelled(data, label string) {
	j.t.Helper()
	j.applyHub(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gate, namespace: federator, labels: {federator.dev/external-data: %q}}\ndata: {gate.yaml: %q}\n", label, data))
}

// awaitDocument waits until the status has a document for a reason.
func (j *job) awaitDocument(name, reason string) v1alpha1.ExternalDocumentStatus {
	j.t.Helper()
	var found v1alpha1.ExternalDocumentStatus
	clitest.Eventually(j.t, name+" is "+reason, func() error {
		var ps v1alpha1.PolicySource
		if err := j.get(&ps, "policysources", "git"); err != nil {
			return err
		}
		for _, d := range ps.Status.External {
			c := meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.ExternalData)
			if d.Name == name && d.Reason == reason && c != nil && (c.Status == "True") == d.Known {
				found = d
				return nil
			}
		}
		return fmt.Errorf("%+v %+v", ps.Status.External, ps.Status.Conditions)
	})
	return found
}

// TestExternal_DocumentsCorrectTheFleet follows documents from a file in git, a ConfigMap of the hub and an HTTPS server to a
// correction, and to none where one of them is not known.
func TestExternal_DocumentsCorrectTheFleet(t *testing.T) {
	j := newJob(t)
	server := newCatalog(t)
	files := map[string]string{"tier.rego": externalPolicy, "tier_test.rego": externalTest, "tier_fleet.yaml": externalFleet, "data/tiers.yaml": "one: gold\ntwo: gold\n"}
	j.commit(files)
	for _, name := range []string{"one", "other"} {
		j.configMap(name)
	}
	j.gate("open: true\n")
	j.applyHub("apiVersion: v1\nkind: Secret\nmetadata: {name: catalog, namespace: federator}\nstringData: {token: t0ken}\n")
	j.applyHub(externalReaders)
	hubFile := clitest.WriteFile(t, "hub.kubeconfig", string(j.hub.Kubeconfig()))
	config := clitest.WriteFile(t, "federator.yaml", fmt.Sprintf(`
sources: {kubeconfig: %s, clusterAPI: {namespaces: [fleet]}}
network: {allow: [127.0.0.0/8]}
query: {priority: false}
policies: {hub: true, allowFile: true, secretNamespaces: [federator]}
`, hubFile))
	r := start(t, "--config", config)
	ready(t, r)
	j.applyHub(fmt.Sprintf(`apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: git}
spec:
  url: file://%s
  interval: 10s
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [ConfigMap]}]}
  external:
  - name: tiers
    file: data/tiers.yaml
    schema: {type: object, additionalProperties: {type: string}}
  - name: gate
    configMap: {name: gate, key: gate.yaml}
  - name: catalog
    maxAge: 14s
    https:
      url: %s/catalog.json
      interval: 10s
      caBundle: %q
      secretRef: {name: catalog}
`, j.repo.Dir, server.URL, server.ca()))
	j.applyHub(fmt.Sprintf(fleetPolicy, 100))
	j.awaitTier("one", "gold")
	if server.denied.Load() > 0 || j.tier("other") != "" {
		t.Errorf("the server was asked without the token %d times; what is not in the list has tier %q", server.denied.Load(), j.tier("other"))
	}

	// Who may get the PolicySource sees what comes of it, and nobody else.
	client := func(account string) *queryclient.Client {
		c, err := (&queryclient.Flags{Kubeconfig: queryKubeconfig(t, r, hubFile, account)}).Client()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c *queryclient.Client, path, query string) (string, error) {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := c.Get(t.Context(), "/query/v1/"+path, values, "application/json")
		return string(body), err
	}
	ann, ben := client("ann"), client("ben")
	rows := func(c *queryclient.Client, rego string) int {
		var answer struct{ Rows []json.RawMessage }
		body, err := ask(c, "rego", "query="+url.QueryEscape(rego))
		if err = errors.Join(err, json.Unmarshal([]byte(body), &answer)); err != nil {
			t.Fatal(err)
		}
		return len(answer.Rows)
	}
	const every, some = `data.fleet.external[source][key]`, `data.fleet.external.git.tiers.one == "gold"`
	if n, m := rows(ann, every), rows(ann, some); n != 3 || m != 1 {
		t.Errorf("who may get the source finds %d documents, and %d", n, m)
	}
	if n, m := rows(ben, every), rows(ben, some); n != 0 || m != 0 {
		t.Errorf("others find %d documents, and %d", n, m)
	}
	const verdict = "policy=tier&member=fleet/eu-1&kind=ConfigMap&namespace=default&name=one"
	if body, err := ask(ann, "explain", verdict); err != nil || !strings.Contains(body, `data.fleet.external.git.tiers.one`) {
		t.Errorf("%v: %s", err, body)
	}
	if body, err := ask(ben, "explain", verdict); err == nil {
		t.Errorf("others are told %s", body)
	}
	withheld := func(c *queryclient.Client) bool {
		var list policyquery.ViolationList
		body, err := ask(c, "violations", "policy=tier")
		if err = errors.Join(err, json.Unmarshal([]byte(body), &list)); err != nil {
			t.Fatal(err)
		}
		return len(list.Withheld) == 1
	}
	if withheld(ann) || !withheld(ben) {
		t.Error("violations are not shown to who may get the source, or to others")
	}

	// Other contents correct who has read them.
	j.configMap("two")
	j.awaitTier("two", "gold")
	server.set(`{"gold": true, "silver": true}`)
	files["data/tiers.yaml"] = "one: silver\ntwo: gold\n"
	j.commit(files)
	j.sync("silver")
	j.awaitTier("one", "silver")
	if from := j.awaitDocument("tiers", "Current").From; !strings.HasPrefix(from, "data/tiers.yaml of commit ") {
		t.Errorf("from %q", from)
	}

	// A gate that is closed, and one that is not understood: nothing is written.
	unknown := func(n int64) {
		t.Helper()
		j.awaitPolicy(fmt.Sprintf("%d are Unknown", n), func(fp *v1alpha1.FleetPolicy) bool { return fp.Status.Totals != nil && fp.Status.Totals.Unknown == n })
	}
	j.gate("open: [")
	if d := j.awaitDocument("gate", "Invalid"); !strings.Contains(d.Message, "line 1") {
		t.Errorf("message %q", d.Message)
	}
	unknown(2) // both that are in the list: others have not come to the gate
	j.relabel("one", "brass")
	j.awaitPolicy("what changed is judged", func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Status.Totals != nil && fp.Status.Totals.Unknown == 2 && fp.Status.Totals.Violations == 1
	})
	if got := j.tier("one"); got != "brass" {
		t.Errorf("it is written by what is not understood: %q", got)
	}
	j.gateLabelled("open: true\n", "false")
	if d := j.awaitDocument("gate", "NotFound"); !strings.Contains(d.Message, "has no label federator.dev/external-data") {
		t.Errorf("message %q", d.Message)
	}
	j.gate("open: true\n")
	j.awaitTier("one", "silver")
	unknown(0)

	// The server is lost: what it has said is too old after a while.
	server.broken.Store(true)
	d := j.awaitDocument("catalog", "TooOld")
	if !strings.Contains(d.Message, "may be 14s old") || !strings.Contains(d.Message, "the server answers 502") || d.LastRead == nil {
		t.Errorf("%+v", d)
	}
	unknown(2)
	j.relabel("one", "brass")
	j.awaitPolicy("what changed is judged", func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Status.Totals != nil && fp.Status.Totals.Unknown == 2 && fp.Status.Totals.Violations == 1
	})
	if got := j.tier("one"); got != "brass" {
		t.Errorf("it is written by what is too old: %q", got)
	}
	server.broken.Store(false)
	j.sync("again")
	j.awaitDocument("catalog", "Current")
	j.awaitTier("one", "silver")
}
