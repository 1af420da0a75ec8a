package webui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/issuer"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/queryserver"
)

// operator is what the relay's requests need.
var operator = []rbacv1.PolicyRule{
	{APIGroups: []string{"federator.dev"}, Resources: []string{"fleetpolicies", "plans", "actions"}, Verbs: []string{"get", "patch"}},
	{APIGroups: []string{"federator.dev"}, Resources: []string{"approvals", "rollbacks"}, Verbs: []string{"create", "get"}},
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "delete"}},
}

func request(t *testing.T, verb, resource string, path ...string) *rest.Request {
	t.Helper()
	return hub(t).Client().CoreV1().RESTClient().Verb(verb).AbsPath(append([]string{"apis", "federator.dev", "v1alpha1", resource}, path...)...)
}

// apply creates an object of one of federator's kinds, with its status, unless it is there.
func apply(t *testing.T, manifest, resource, name, status string) {
	t.Helper()
	if err := hub(t).Apply(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
	if status == "" {
		return
	}
	err := request(t, "PATCH", resource, name, "status").SetHeader("Content-Type", string(types.MergePatchType)).Body([]byte(`{"status":` + status + `}`)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}

func applyPolicy(t *testing.T, name string) {
	t.Helper()
	apply(t, fmt.Sprintf("apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: %s}\nspec: {package: acme.tier, mode: Observe}\n", name), v1alpha1.FleetPolicies, name, "")
}

func into[T any](t *testing.T, what string, answer *http.Response, body string) T {
	t.Helper()
	var got T
	if err := json.Unmarshal([]byte(body), &got); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s", what, answer.StatusCode, body)
	}
	return got
}

// auditedRelay is a server whose requests of the relay are in an audit log, and the log.
func auditedRelay(t *testing.T) (*server, string) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, func(o *setup) {
		withOIDC(o)
		o.api.Audit = queryapi.Audit{PolicyFile: policy, LogFile: log}
	}), log
}

// TestRelay_WritesAsItsCaller: each of the requests reaches the hub as that of the person, and as the hub allows.
func TestRelay_WritesAsItsCaller(t *testing.T) {
	s, audit := auditedRelay(t)
	user := userPrefix + issuer.Ann
	applyPolicy(t, "tier")
	b := s.browser()
	b.logInAs(issuer.Ann)
	answer, body := b.ask("POST", "/ui/relay/fleetpolicies/tier/suspend", `{"suspend":true}`)
	wantStatus(t, "without permission", answer, body, http.StatusForbidden, `User "`+user+`" cannot patch`)
	allow(t, user, operator...)
	until(t, "the hub knows of the grant", func() bool {
		answer, _ := b.ask("POST", "/ui/relay/fleetpolicies/tier/suspend", `{"suspend":true}`)
		return answer.StatusCode == http.StatusOK
	})
	answer, body = b.ask("POST", "/ui/relay/fleetpolicies/tier/suspend", `{"suspend":false}`)
	fp := into[v1alpha1.FleetPolicy](t, "suspend", answer, body)
	if fp.Name != "tier" || fp.Spec.Suspend || fp.Kind != "FleetPolicy" {
		t.Errorf("FleetPolicy %s", body)
	}
	answer, body = b.ask("POST", "/ui/relay/fleetpolicies/none/suspend", `{"suspend":false}`)
	wantStatus(t, "no policy", answer, body, http.StatusNotFound, `"none" not found`)

	answer, body = b.ask("POST", "/ui/relay/approvals", `{"fleetPolicy":"tier","halt":"0123456789ab","reason":"expected","expiresSeconds":3600}`)
	a := into[v1alpha1.Approval](t, "approval", answer, body)
	if string(a.Spec.By) != user || a.Spec.Halt != "0123456789ab" || a.Spec.Reason != "expected" || time.Until(a.Spec.Expires.Time) > time.Hour || !strings.HasPrefix(a.Name, "tier-") {
		t.Errorf("Approval %s", body)
	}
	answer, body = b.ask("POST", "/ui/relay/rollbacks", `{"fleetPolicy":"tier","since":"1h","reason":"incident","whileStopped":true}`)
	r := into[v1alpha1.Rollback](t, "rollback", answer, body)
	if string(r.Spec.By) != user || r.Spec.Since == nil || r.Spec.Reason != "incident" || !r.Spec.WhileStopped || r.Spec.Policy != "tier" {
		t.Errorf("Rollback %s", body)
	}
	if !s.log.has("request relayed to the hub", `user="`+user+`"`, "path=/ui/relay/rollbacks", `object="FleetPolicy tier"`, "code=200") &&
		!s.log.has("request relayed to the hub", "user="+user, "path=/ui/relay/rollbacks", `object="FleetPolicy tier"`, "code=200") {
		t.Error("the log does not name the caller")
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(text)) {
		found = found || strings.Contains(line, "/ui/relay/rollbacks") && strings.Contains(line, `"username":"`+user+`"`) && strings.Contains(line, `"verb":"post"`) && strings.Contains(line, `"code":200`)
	}
	if !found {
		t.Errorf("the audit log does not name the caller: %s", text)
	}
}

func TestRelay_Plans(t *testing.T) {
	s := start(t, withOIDC)
	user := userPrefix + issuer.Ann
	applyPolicy(t, "unique-host")
	plan, err := os.ReadFile("../../test/crds/testdata/plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const name, hash = "unique-host-9f86d081884c7d65", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	manifest := strings.NewReplacer("purpose: Halt", "purpose: Generation").Replace(string(plan))
	head, halt, _ := strings.Cut(manifest, "  halt:\n")
	_, rest, _ := strings.Cut(halt, "  targets:")
	manifest, _, _ = strings.Cut(head+"  targets:"+rest, "status:")
	apply(t, manifest, v1alpha1.Plans, name, `{"state":"Waiting","since":"2026-11-21T11:00:00Z"}`)
	allow(t, user, operator...)
	b := s.browser()
	b.logInAs(issuer.Ann)
	send := func(body string) (*http.Response, string) { return b.ask("POST", "/ui/relay/approvals", body) }
	until(t, "the hub knows of the grant", func() bool {
		answer, _ := send(`{"fleetPolicy":"unique-host","plan":"` + hash + `","reason":"reviewed"}`)
		return answer.StatusCode == http.StatusOK
	})
	answer, body := send(`{"fleetPolicy":"unique-host","plan":"` + name + `","reason":"reviewed"}`)
	if a := into[v1alpha1.Approval](t, "plan", answer, body); string(a.Spec.Plan) != hash || time.Until(a.Spec.Expires.Time) < 23*time.Hour {
		t.Errorf("Approval %s", body)
	}
	for what, c := range map[string]struct {
		body string
		code int
		text string
	}{
		"a plan as a rollback":    {`{"fleetPolicy":"unique-host","rollback":"` + hash + `","reason":"r"}`, 409, "is not a rollback"},
		"another hash":            {`{"fleetPolicy":"unique-host","plan":"` + hash[:20] + strings.Repeat("0", 44) + `","reason":"r"}`, 409, "has another hash"},
		"no hash":                 {`{"fleetPolicy":"unique-host","plan":"x","reason":"r"}`, 400, "neither the hash nor the name"},
		"a path":                  {`{"fleetPolicy":"unique-host","plan":"0123456789abcde/../../x","reason":"r"}`, 400, "neither the hash nor the name"},
		"no plan":                 {`{"fleetPolicy":"unique-host","plan":"` + strings.Repeat("0", 64) + `","reason":"r"}`, 404, "not found"},
		"no reason":               {`{"fleetPolicy":"unique-host","plan":"` + hash + `","reason":" "}`, 400, "reason is required"},
		"nothing":                 {`{"fleetPolicy":"unique-host","reason":"r"}`, 400, "one plan, halt, rollback, version or commit"},
		"two things":              {`{"fleetPolicy":"unique-host","plan":"` + hash + `","halt":"a","reason":"r"}`, 400, "one plan, halt, rollback, version or commit"},
		"a commit of a policy":    {`{"fleetPolicy":"unique-host","commit":"` + hash[:40] + `","reason":"r"}`, 400, "of its PolicySource"},
		"policy and source":       {`{"fleetPolicy":"unique-host","policySource":"a","commit":"` + hash[:40] + `","reason":"r"}`, 400, "of a FleetPolicy or of a PolicySource"},
		"a name that is a path":   {`{"fleetPolicy":"../../../api/v1/secrets","halt":"a","reason":"r"}`, 400, "not a name"},
		"a source that is a path": {`{"policySource":"a/b","commit":"` + hash[:40] + `","reason":"r"}`, 400, "not a name"},
		"no time":                 {`{"fleetPolicy":"unique-host","plan":"` + hash + `","reason":"r","expiresSeconds":-1}`, 400, "expiresSeconds"},
		"all time":                {`{"fleetPolicy":"unique-host","plan":"` + hash + `","reason":"r","expiresSeconds":9000000000000000000}`, 400, "expiresSeconds"},
		"an unknown field":        {`{"fleetPolicy":"unique-host","by":"someone"}`, 400, `unknown field "by"`},
		"two objects":             {`{"fleetPolicy":"a"}{}`, 400, "more than one"},
	} {
		answer, body := send(c.body)
		wantStatus(t, what, answer, body, c.code, c.text)
	}
}

func TestRelay_Stops(t *testing.T) {
	s := start(t, func(o *setup) {
		withOIDC(o)
		o.api.Loading = func() bool { return true } // a stop waits for nothing
	})
	user := userPrefix + issuer.Bob
	allow(t, user, operator...)
	b := s.browser()
	b.logInAs(issuer.Bob)
	type stop struct {
		Scope, Name, Text string
		Created           bool
	}
	for _, c := range []struct{ scope, name, configMap string }{
		{"", "", "federator-stop"}, {"policy", "tier", "federator-stop-policy-tier"}, {"member", "fleet/eu-1", "federator-stop-member-fleet.eu-1"}, {"source", "git", "federator-stop-source-git"},
	} {
		body := fmt.Sprintf(`{"scope":%q,"name":%q,"reason":"incident 4711"}`, c.scope, c.name)
		var answer *http.Response
		var text string
		until(t, "the hub knows of the grant", func() bool {
			answer, text = b.ask("POST", "/ui/relay/stops", body)
			return answer.StatusCode != http.StatusForbidden
		})
		if got := into[stop](t, c.scope, answer, text); got.Scope != c.scope || got.Name != c.name || !got.Created || !strings.Contains(got.Text, user) || !strings.Contains(got.Text, "incident 4711") {
			t.Errorf("%s: %s", c.scope, text)
		}
		if _, err := hub(t).Client().CoreV1().ConfigMaps("federator").Get(t.Context(), c.configMap, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		answer, text = b.ask("POST", "/ui/relay/stops", body)
		if got := into[stop](t, c.scope, answer, text); got.Created {
			t.Errorf("%s, again: %s", c.scope, text)
		}
		path := "/ui/relay/stops?scope=" + c.scope + "&name=" + c.name
		answer, text = b.ask("DELETE", path, "")
		if got := into[stop](t, c.scope, answer, text); !strings.Contains(got.Text, "incident 4711") {
			t.Errorf("%s: %s", c.scope, text)
		}
		answer, text = b.ask("DELETE", path, "")
		if got := into[stop](t, c.scope, answer, text); got.Text != "" {
			t.Errorf("%s, again: %s", c.scope, text)
		}
	}
	for _, body := range []string{`{"scope":"policy"}`, `{"scope":"","name":"a"}`, `{"scope":"member","name":"a"}`, `{"scope":"member","name":"../a"}`, `{"scope":"all"}`, `{"scope":"policy","name":"a b"}`} {
		answer, text := b.ask("POST", "/ui/relay/stops", body)
		wantStatus(t, body, answer, text, http.StatusBadRequest, "")
	}
}

// TestRelay_RollsBackAnAction: the leader is played by the test; the commands' stories have the real one.
func TestRelay_RollsBackAnAction(t *testing.T) {
	s := start(t, withOIDC)
	manifest, err := os.ReadFile("../../test/crds/testdata/action.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec, _, _ := strings.Cut(string(manifest), "status:")
	const name = "unique-host-0123456789abcdef0123"
	apply(t, spec, v1alpha1.Actions, name, `{"phase":"Succeeded"}`)
	allow(t, userPrefix+issuer.Ann, operator...)
	b := s.browser()
	b.logInAs(issuer.Ann)
	leader := func(outcome string) {
		until(t, "a rollback is asked for", func() bool {
			var a v1alpha1.Action
			raw, err := request(t, "GET", v1alpha1.Actions, name).Do(t.Context()).Raw()
			return err == nil && json.Unmarshal(raw, &a) == nil && a.Labels[api.RollbackKey] == api.RollbackForce && a.Annotations[api.RollbackReasonKey] == "it breaks the shop"
		})
		err := request(t, "PATCH", v1alpha1.Actions, name).SetHeader("Content-Type", string(types.MergePatchType)).
			Body([]byte(`{"metadata":{"labels":{"` + api.RollbackKey + `":null},"annotations":{"` + api.RollbackOutcomeKey + `":"` + outcome + `"}}}`)).Do(t.Context()).Error()
		if err != nil {
			t.Error(err)
		}
	}
	path, body := "/ui/relay/actions/"+name+"/rollback", `{"reason":"it breaks the shop","force":true}`
	until(t, "the hub knows of the grant", func() bool {
		answer, _ := b.ask("POST", "/ui/relay/actions/none/rollback", "{}")
		return answer.StatusCode == http.StatusNotFound
	})
	type answered struct {
		answer *http.Response
		text   string
	}
	for outcome, want := range map[string]string{"Succeeded by unique-host-4711": "", "Refused it has changed since": "rollback Refused: it has changed since"} {
		done := make(chan answered, 1)
		go func() {
			answer, text := b.ask("POST", path, body)
			done <- answered{answer, text}
		}()
		leader(outcome)
		got := <-done
		if want != "" {
			wantStatus(t, outcome, got.answer, got.text, http.StatusConflict, want)
			continue
		}
		if by := into[map[string]string](t, outcome, got.answer, got.text)["rolledBackBy"]; by != "unique-host-4711" {
			t.Errorf("%s: %s", outcome, got.text)
		}
	}
	apply(t, spec, v1alpha1.Actions, name, `{"phase":"RolledBack","message":"by x"}`)
	answer, text := b.ask("POST", path, body)
	wantStatus(t, "again", answer, text, http.StatusConflict, "already rolled back, by x")
}

// TestRelay_IsForTokensOfTheHub: who has a token for federator may look only, and is told so.
func TestRelay_IsForTokensOfTheHub(t *testing.T) {
	const audience = "https://kubernetes.default.svc.cluster.local"
	s := start(t, func(o *setup) {
		o.api.Authentication.HubTokens = []queryapi.HubTokens{{Issuer: audience, Audience: audience}}
	})
	b := s.browser()
	b.logIn(tokenFor(t, "looker", "federator"))
	answer, text := b.ask("POST", "/ui/relay/stops", `{"scope":""}`)
	wantStatus(t, "a token for federator", answer, text, http.StatusForbidden, "your token is for federator")
	writer := tokenFor(t, "writer")
	b.logIn(writer)
	if got := b.session(); got.User != queryserver.UserOf("writer") || !got.CanWrite {
		t.Errorf("session %+v", got)
	}
	answer, text = b.ask("POST", "/ui/relay/stops", `{"scope":""}`)
	wantStatus(t, "a token for the hub", answer, text, http.StatusForbidden, "cannot create resource")
	curl := s.browser()
	answer, text = curl.ask("POST", "/ui/relay/stops", `{"scope":""}`, "Authorization: Bearer "+writer, "Sec-Fetch-Site: ", "Origin: ")
	wantStatus(t, "of no browser", answer, text, http.StatusForbidden, "cannot create resource")
	plain := start(t, nil).browser()
	answer, text = plain.ask("GET", "/query/v1/whoami", "", "Authorization: Bearer "+writer)
	wantStatus(t, "a token for the hub, where none is taken", answer, text, http.StatusUnauthorized, "")
}

func TestRelay_IsForOwnPages(t *testing.T) {
	s := start(t, withOIDC)
	b := s.browser()
	b.logInAs(issuer.Ann)
	token := tokenFor(t, "proxied", "federator")
	for _, c := range []struct {
		method, path, body string
		header             []string
		code               int
		text               string
	}{
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, nil, 400, "scope"},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: cross-site"}, 401, ""},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: same-site"}, 401, ""},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: none"}, 401, ""},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: "}, 401, ""},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: cross-site", "Authorization: Bearer " + token}, 403, "not from a page of this server"},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Sec-Fetch-Site: ", "Origin: https://evil.example", "Authorization: Bearer " + token}, 403, "not from a page of this server"},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Content-Type: text/plain"}, 415, "application/json"},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Content-Type: "}, 415, "application/json"},
		{"POST", "/ui/relay/stops", `scope=x`, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "application/json"},
		{"POST", "/ui/relay/stops", `{"scope":"x"}`, []string{"Impersonate-User: admin"}, 403, "impersonation"},
		{"GET", "/ui/relay/stops", "", nil, 405, ""},
		{"PUT", "/ui/relay/stops", "{}", nil, 405, ""},
		{"GET", "/ui/relay/secrets", "", nil, 404, ""},
		{"POST", "/ui/relay/fleetpolicies/UPPER/suspend", `{"suspend":true}`, nil, 400, "not a name"},
		{"POST", "/ui/relay/fleetpolicies/a/suspend", `{}`, nil, 400, "suspend is required"},
		{"POST", "/ui/relay/rollbacks", `{"fleetPolicy":"a","since":"1h","reason":"r","members":["a/b"]}`, nil, 400, "members must be empty"},
		{"POST", "/ui/relay/rollbacks", `{"fleetPolicy":"a","since":"yesterday","reason":"r"}`, nil, 400, "neither a duration"},
		{"POST", "/ui/relay/rollbacks", `{"fleetPolicy":"a","reason":"r"}`, nil, 400, "since or commit is required with fleetPolicy"},
		{"POST", "/ui/relay/rollbacks", `{"since":"1h","reason":"r"}`, nil, 400, "fleetPolicy is required"},
		{"POST", "/ui/relay/rollbacks", `{"fleetPolicy":"a","since":"1h"}`, nil, 400, "reason is required"},
	} {
		answer, text := b.ask(c.method, c.path, c.body, c.header...)
		wantStatus(t, fmt.Sprint(c.method, c.path, c.body, c.header), answer, text, c.code, c.text)
		wantHeaders(t, c.path, answer)
	}
}

func TestRelay_HubThatIsAway(t *testing.T) {
	s := start(t, withOIDC)
	b := s.browser()
	b.logInAs(issuer.Ann) // the review of the token is kept for some seconds
	h := hub(t)
	h.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut})
	defer h.Proxy.Set(tcpproxy.Mode{})
	answer, text := b.ask("POST", "/ui/relay/stops", `{"scope":"","reason":"r"}`)
	wantStatus(t, "without a hub", answer, text, http.StatusServiceUnavailable, "the hub does not answer")
}
