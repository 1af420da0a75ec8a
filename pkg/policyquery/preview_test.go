package policyquery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

const (
	activeTier = `# METADATA
# title: Tiers
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package tier

violation contains {"msg": "no tier", "remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}}} if not input.object.metadata.labels.tier
`
	activeGone = `# METADATA
# title: Goes
# custom: {severity: low, kinds: ["ConfigMap"]}
package goes

violation contains {"msg": "goes"} if input.ref.namespace == "shop"
`
	// candidateTier says other things of namespace web, and nothing of the others.
	candidateTier = `# METADATA
# title: Tiers
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package tier

violation contains {"msg": "still no tier", "remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}}} if input.ref.namespace == "web"
`
	candidateFleet = `# METADATA
# title: Elsewhere
# custom: {severity: low, kinds: ["ConfigMap"]}
package elsewhere

view.names[input.ref.name] contains input.ref.namespace

violation contains {"msg": sprintf("%d of that name", [count(data.fleet.views["elsewhere"].names[input.ref.name])])}
`
	candidateOwn = `# METADATA
# title: Own
# custom: {severity: low, kinds: ["ConfigMap"]}
package own

violation contains {"msg": "is here"}
`
)

// previewed serves a hub, and previews beside a loop.
type previewed struct {
	*hubServer
	loop    *enforce.Loop
	preview *policyquery.Preview
}

func startPreviews(t *testing.T) *previewed {
	t.Helper()
	p := &previewed{}
	set := sourceOf(t, activeTier, activeGone)
	p.hubServer = startHub(t, hubreader.Options{}, func(o *queryapi.Options, _ *hubreader.Reader) {
		p.loop = runLoop(t, o.Index, set)
		p.preview = &policyquery.Preview{Kinds: planFleet{}.Kinds, Loop: p.loop}
		o.Queries["preview"] = p.preview
		o.Queries["violations"] = policyquery.Violations{Kinds: planFleet{}.Kinds, Loop: p.loop}
	})
	p.run()
	p.settle()
	return p
}

func sourceOf(t testing.TB, texts ...string) *policy.Set {
	t.Helper()
	src := policy.Source{Name: "git"}
	for i, text := range texts {
		src.Files = append(src.Files, policy.File{Path: fmt.Sprintf("%d.rego", i), Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// runLoop runs a loop with a binding of each package until the test ends.
func runLoop(t testing.TB, index *aggregate.Index, set *policy.Set) *enforce.Loop {
	t.Helper()
	bindings, _ := policy.DefaultBindings(set, nil)
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return loop
}

// settle waits until all that is in the index is evaluated.
func (p *previewed) settle() {
	p.t.Helper()
	eventually(p.t, func() error {
		if s := p.loop.State(); s == nil || s.Snapshot.Revision() != p.index.Snapshot().Revision() {
			return errors.New("not evaluated")
		}
		return nil
	})
}

// mayPreview lets a user preview.
func (p *previewed) mayPreview(name string) {
	p.t.Helper()
	ctx, rbac, meta := p.t.Context(), shared.Fleet.Hub.Client().RbacV1(), metav1.ObjectMeta{Name: newName("preview")}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"federator.dev"}, Verbs: []string{"preview"}, Resources: []string{"policysources"}},
	}}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// post asks for a preview.
func (p *previewed) post(ctx context.Context, user *http.Client, c policyquery.PreviewCandidate) (r policyquery.PreviewReport, code int, text string) {
	p.t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address+"/query/v1/preview", bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := user.Do(req)
	if err != nil {
		return r, 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(answer, &r)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return r, resp.StatusCode, string(answer)
}

// eventuallyPost asks until the hub has noticed the caller's grants.
func (p *previewed) eventuallyPost(user *http.Client, c policyquery.PreviewCandidate) (r policyquery.PreviewReport, text string) {
	p.t.Helper()
	eventually(p.t, func() (err error) {
		var code int
		if r, code, text = p.post(p.t.Context(), user, c); code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
	return r, text
}

func files(texts ...string) (out []policyquery.PreviewFile) {
	for i, text := range texts {
		out = append(out, policyquery.PreviewFile{Path: fmt.Sprintf("c%d.rego", i), Text: text})
	}
	return out
}

// findings are the violations that a user is shown, by policy and subject.
func (p *previewed) findings(user *http.Client) (found map[string]string, list policyquery.ViolationList) {
	p.t.Helper()
	if code, text := p.ask(user, "violations", &list); code != http.StatusOK {
		p.t.Fatalf("%d %s", code, text)
	}
	found = map[string]string{}
	for _, f := range list.Items {
		var texts []string
		for _, v := range f.Violations {
			texts = append(texts, v.Msg)
		}
		found[fmt.Sprint(f.Policy, f.Subject)] = f.State + strings.Join(texts, ",")
	}
	return found, list
}

// TestPreview_IsWhatViolationsShowThen: callers with different grants are each told what they are shown once the
// candidate is active, and nothing of the rest.
func TestPreview_IsWhatViolationsShowThen(t *testing.T) {
	p := startPreviews(t)
	names := map[string]string{"all": newName("all"), "one member": newName("one"), "one namespace": "web"}
	users := map[string]*http.Client{
		"all": p.user(names["all"], nil, "*"), "one member": p.user(names["one member"], []string{"a"}, "*"), "one namespace": p.user("web", nil),
	}
	candidate := policyquery.PreviewCandidate{Source: "git", Files: files(candidateTier, candidateFleet, candidateOwn)}
	before, reports := map[string]map[string]string{}, map[string]policyquery.PreviewReport{}
	for who, user := range users {
		p.mayPreview(names[who])
		var text string
		reports[who], text = p.eventuallyPost(user, candidate)
		before[who], _ = p.findings(user)
		if r := reports[who]; !r.Complete {
			t.Errorf("%s: %s", who, text)
		}
		for hidden, hides := range map[string]bool{"fleet/b": who == "one member", `"shop"`: who == "one namespace"} {
			if hides && strings.Contains(text, hidden) {
				t.Errorf("%s is told of %s: %s", who, hidden, text)
			}
		}
	}
	set := sourceOf(t, candidateTier, candidateFleet, candidateOwn)
	bindings, _ := policy.DefaultBindings(set, nil)
	if err := p.loop.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}
	for who, user := range users {
		after, list := p.findings(user)
		r := reports[who]
		if fmt.Sprint(r.Withheld) != fmt.Sprint(list.Withheld) {
			t.Errorf("%s: withheld %v, then %v", who, r.Withheld, list.Withheld)
		}
		appear, vanish, change := 0, 0, 0
		for at, text := range after {
			switch was, is := before[who][at]; {
			case !is:
				appear++
			case was != text:
				change++
			}
		}
		for at := range maps.Keys(before[who]) {
			if _, is := after[at]; !is {
				vanish++
			}
		}
		var got policyquery.PreviewCounts
		for _, x := range r.Policies {
			got.Appear, got.Vanish, got.Change = got.Appear+x.Appear, got.Vanish+x.Vanish, got.Change+x.Change
		}
		want := policyquery.PreviewCounts{Appear: appear, Vanish: vanish, Change: change}
		if got != want || appear+vanish+change == 0 {
			t.Errorf("%s: %+v, then %+v", who, got, want)
		}
	}
	all := reports["all"]
	if len(all.Corrections) != 1 || all.Corrections[0].Wanted != 2 || all.Corrections[0].Now != 4 {
		t.Errorf("corrections: %+v", all.Corrections)
	}
}

func TestPreview_RequiresItsVerb(t *testing.T) {
	p := startPreviews(t)
	name := newName("reader")
	user := p.user(name, nil, "*")
	candidate := policyquery.PreviewCandidate{Files: files(candidateOwn)}
	if _, code, text := p.post(t.Context(), user, candidate); code != http.StatusForbidden {
		t.Errorf("%d %s", code, text)
	}
	p.mayPreview(name)
	r, text := p.eventuallyPost(user, candidate)
	if len(r.Policies) != 1 || r.Policies[0].Is != policyquery.PreviewAdded || r.Policies[0].Appear != 4 || len(r.Samples) != 4 || r.Policies[0].Evaluations+r.Policies[0].Shared != 4 {
		t.Errorf("%s", text) // without a source no package goes
	}
	for what, bad := range map[string]policyquery.PreviewCandidate{
		"Rego":       {Files: files("package x\nviolation contains")},
		"a binding":  {Files: files(candidateOwn), Bindings: []policy.Binding{{Name: "x", Package: "none"}}},
		"a path":     {Files: []policyquery.PreviewFile{{Path: "../x.rego", Text: candidateOwn}}},
		"data files": {Files: []policyquery.PreviewFile{{Path: "data.json", Text: "{}"}}},
	} {
		if _, code, text := p.post(t.Context(), user, bad); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
	large := policyquery.PreviewCandidate{Files: []policyquery.PreviewFile{{Path: "x.rego", Text: strings.Repeat("#", 9<<20)}}}
	if _, code, text := p.post(t.Context(), user, large); code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", code, text)
	}
	for method, code := range map[string]int{http.MethodGet: http.StatusBadRequest, http.MethodPut: http.StatusMethodNotAllowed} {
		req, err := http.NewRequestWithContext(t.Context(), method, p.address+"/query/v1/preview", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := user.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}

func TestPreview_WhatIsOverABoundIsIncomplete(t *testing.T) {
	p := startPreviews(t)
	name := newName("bounds")
	user := p.user(name, nil, "*")
	p.mayPreview(name)
	candidate := policyquery.PreviewCandidate{Files: files(candidateFleet)}
	if r, text := p.eventuallyPost(user, candidate); !r.Complete || r.Policies[0].Appear != 4 {
		t.Errorf("%s", text)
	}
	p.preview.MaxBytes = 1
	if r, text := p.eventuallyPost(user, candidate); r.Complete || !strings.Contains(r.Ended, "memory") {
		t.Errorf("%s", text)
	}
	p.preview.MaxBytes, p.preview.MaxTime = 0, time.Nanosecond
	if r, text := p.eventuallyPost(user, candidate); r.Complete || !strings.Contains(r.Ended, "longer") {
		t.Errorf("%s", text)
	}
}

// patient is a caller whose grants are known when somebody says so.
type patient struct {
	slow
	asked chan struct{}
}

func (patient) HubAllows(context.Context, string, string) (bool, error) { return true, nil }

func (patient) HubAllowsNamed(context.Context, string, string, string) (bool, error) {
	return true, nil
}

func (p patient) Visible(ctx context.Context, _ *aggregate.Snapshot) ([]string, time.Time, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	return nil, time.Time{}, context.Cause(ctx)
}

func TestPreview_OneAtATimeAndEndsWithItsRequest(t *testing.T) {
	q := previewOfNothing(t)
	post := func(ctx context.Context, name string, asked chan struct{}) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/query/v1/preview", strings.NewReader(`{"files":[]}`))
		return q.Post(httptest.NewRecorder(), r, patient{slow{name: name}, asked})
	}
	for range 2 { // the second time, nothing is left of the first
		ctx, cancel := context.WithCancel(t.Context())
		asked, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- post(ctx, "ann", asked) }()
		<-asked
		for name, want := range map[string]string{"ann": "another preview of yours has", "bob": "another preview runs"} {
			err := post(t.Context(), name, nil)
			if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "ann") {
				t.Errorf("%v", err)
			}
			if since := strings.Contains(err.Error(), "since"); since != (name == "ann") {
				t.Errorf("%s is told since when it runs: %t", name, since)
			}
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// TestPreview_LoadsOneCandidateOfAUser at a time, and two in all; the turn to be evaluated is not taken meanwhile.
func TestPreview_LoadsOneCandidateOfAUser(t *testing.T) {
	q := &policyquery.Preview{}
	end, err := q.BeginLoading("ann")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(user, want string) {
		t.Helper()
		if _, err := q.BeginLoading(user); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", user, err)
		}
	}
	refused("ann", "another preview of yours is being loaded")
	other, err := q.BeginLoading("bob")
	if err != nil {
		t.Fatal(err)
	}
	refused("eve", "other previews are being loaded")
	other()
	end()
	if end, err = q.BeginLoading("ann"); err != nil {
		t.Fatal(err)
	}
	end()
}

// TestPreview_GoesWithItsClient: a candidate whose client has gone while it was loaded takes no turn.
func TestPreview_GoesWithItsClient(t *testing.T) {
	q := previewOfNothing(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/query/v1/preview", strings.NewReader(`{"files":[]}`))
	asked := make(chan struct{}, 1)
	if err := q.Post(httptest.NewRecorder(), r, patient{slow{name: "ann"}, asked}); !errors.Is(err, context.Canceled) || len(asked) > 0 {
		t.Errorf("%v, after %d questions about grants", err, len(asked))
	}
}

// previewOfNothing serves previews on an empty fleet that has been evaluated.
func previewOfNothing(t *testing.T) *policyquery.Preview {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	loop := runLoop(t, index, sourceOf(t, activeTier))
	eventually(t, func() error {
		if loop.State() == nil {
			return errors.New("not evaluated")
		}
		return nil
	})
	return &policyquery.Preview{Kinds: planFleet{}.Kinds, Loop: loop}
}
