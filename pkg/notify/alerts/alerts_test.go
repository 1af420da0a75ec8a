package alerts_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: alerts are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAlerts_AreGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a", "fleet/b")
	w.put("fleet/a", "web", "Failed", "OOM")
	w.judge(t)
	w.put("fleet/a", "api", "Failed", "Evicted", "OOM")
	w.put("fleet/b", "web", "Running", "")
	s := w.judge(t)
	for what, c := range map[string]struct {
		by    []string
		rules []selection.Rule
		want  []string
	}{
		"nothing": {nil, nil, []string{"FederatorViolation | 0 | 6 violations of 3 policies in 2 members"}},
		"policy": {[]string{"Policy"}, nil, []string{
			"FederatorViolation failed | 1 | 3 violations of failed in 1 member", "FederatorViolation twice | 2 | 2 violations of twice in 2 members",
			"FederatorViolation versions | 0 | 1 violation of versions in 1 member",
		}},
		"member and severity": {[]string{"Member", "Severity"}, nil, []string{
			"FederatorViolation fleet/a high | 1 | 3 violations of failed in 1 member", "FederatorViolation fleet/a low | 2 | 1 violation of twice in 1 member",
			"FederatorViolation fleet/b critical | 0 | 1 violation of versions in 1 member", "FederatorViolation fleet/b low | 2 | 1 violation of twice in 1 member",
		}},
		"kind": {[]string{"Kind", "Namespace"}, nil, []string{
			"FederatorViolation | 0 | 1 violation of versions in 1 member", "FederatorViolation Pod shop | 1 | 5 violations of 2 policies in 2 members",
		}},
		"object": {[]string{"Object"}, nil, []string{
			"FederatorViolation fleet/a Pod shop api | 2 | 2 violations of failed in 1 member", "FederatorViolation fleet/a Pod shop web | 1 | 2 violations of 2 policies in 1 member",
			"FederatorViolation fleet/b | 0 | 1 violation of versions in 1 member", "FederatorViolation fleet/b Pod shop web | 2 | 1 violation of twice in 1 member",
		}},
		"a rule":                {[]string{"Policy"}, []selection.Rule{{Severities: []string{"high"}}}, []string{"FederatorViolation failed | 1 | 3 violations of failed in 1 member"}},
		"a rule of what closes": {nil, []selection.Rule{{Transitions: []string{"Closed"}}}, nil},
		"a rule of labels":      {nil, []selection.Rule{{Members: policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "a"}}}}}, nil}, // none are known
	} {
		same(t, what, w.lines(newAlerts(t, false, c.by, c.rules...).Open(s, nil)), c.want...)
	}
	only := func(member string) bool { return member == "fleet/b" }
	same(t, "one member", w.lines(newAlerts(t, false, nil).Open(s, only)), "FederatorViolation | 0 | 2 violations of 2 policies in 1 member")
}

func TestAlerts_HaveTextIfTheyMay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a", "fleet/b")
	for _, name := range []string{"d", "c", "b", "a"} {
		w.put("fleet/b", name, "Failed", "line\\nbreak", "OOM")
	}
	w.put("fleet/a", "z", "Failed", "OOM")
	s := w.judge(t)
	rule := selection.Rule{Policies: []string{"failed"}}
	if got := newAlerts(t, false, nil, rule).Open(s, nil)[0].Description; got != "" {
		t.Errorf("description %q", got)
	}
	want := `fleet/a Pod shop/z: it has failed: OOM
fleet/b Pod shop/a: it has failed: OOM
fleet/b Pod shop/a: it has failed: line break
fleet/b Pod shop/b: it has failed: OOM
fleet/b Pod shop/b: it has failed: line break
and 4 more`
	if got := newAlerts(t, true, nil, rule).Open(s, nil)[0].Description; got != want {
		t.Errorf("description\n%s\nwant\n%s", got, want)
	}
}

// What cannot be judged stays open, and what is exempt does not, though a failure hides it.
func TestAlerts_KeepWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a", "fleet/b")
	a := newAlerts(t, true, []string{"Policy"}, selection.Rule{Policies: []string{"failed", "twice"}})
	w.put("fleet/a", "web", "Failed", "OOM", "Evicted")
	w.put("fleet/b", "web", "Running", "")
	w.judge(t)
	w.put("fleet/a", "web", "x")
	w.status(t, "fleet/b", aggregate.Stale)
	s := w.judge(t)
	same(t, "hidden", w.lines(a.Open(s, nil)),
		"FederatorViolation failed | 1 | 2 violations of failed in 1 member; 2 of them cannot be checked now",
		"FederatorViolation twice | 1 | 2 violations of twice in 2 members; 2 of them cannot be checked now")
	w.exempt(t, "web")
	same(t, "exempt", w.lines(a.Open(w.judge(t), nil)))
	w.exempt(t)
	w.status(t, "fleet/b", aggregate.Synced)
	w.put("fleet/a", "web", "Failed", "OOM")
	same(t, "known", w.lines(a.Open(w.judge(t), nil)), "FederatorViolation failed | 1 | 1 violation of failed in 1 member", "FederatorViolation twice | 1 | 2 violations of twice in 2 members")
}

func TestAlerts_AreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a", "fleet/b", "fleet/c")
	rule := selection.Rule{Policies: []string{"failed", "versions"}}
	for i := range 600 {
		w.put("fleet/a", fmt.Sprintf("a%04d", i), "Failed", "OOM")
	}
	w.judge(t)
	for i := range 399 {
		w.put("fleet/c", fmt.Sprintf("c%04d", i), "Failed", "OOM")
	}
	s := w.judge(t)
	a := newAlerts(t, false, []string{"Object"}, rule)
	if got := a.Open(s, nil); len(got) != 1000 || got[999].Labels["others"] != "" {
		t.Fatalf("%d alerts of 1000 groups, the last of which is %v", len(got), got[len(got)-1])
	}
	w.put("fleet/a", "0-new", "Failed", "OOM", "Evicted") // before all others by its name
	w.put("fleet/b", "0-new", "Failed", "OOM")
	w.put("fleet/b", "1-new", "Failed", "OOM")
	s = w.judge(t)
	got := a.Open(s, nil)
	if len(got) != 1000 {
		t.Fatalf("%d alerts", len(got))
	}
	last := w.lines(got[999:])
	same(t, "others", last, "FederatorViolation true | 2 | 5 violations of failed in 3 members, in 4 more groups")
	if got[600].Labels["member"] != "fleet/b" || got[600].Labels["name"] != "" {
		t.Errorf("the most severe group has no alert: there is %v", got[600].Labels)
	}
	for _, x := range got[:999] {
		if strings.Contains(x.Labels["name"], "new") {
			t.Errorf("the newest group has an alert of its own: %v", x.Labels)
		}
	}
	for i := range 5 {
		if again := a.Open(s, nil); !slices.Equal(w.lines(again), w.lines(got)) {
			t.Fatalf("alerts are others when asked %d times", i+2)
		}
	}
}

func TestNew_RefusesWhatItCannotGroupBy(t *testing.T) {
	t.Parallel()
	s, err := selection.New(selection.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = alerts.New(alerts.Options{Selection: s, GroupBy: []string{"Policy", "policy"}})
	var wrong *alerts.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "groupBy[1]" {
		t.Errorf("error %v", err)
	}
	if _, err := alerts.New(alerts.Options{}); err == nil {
		t.Error("no error without a selection")
	}
}

// plain counts what is open without groups. It remembers for itself what failures hide.
type plain struct {
	seen   map[string]int // violations of a subject when it was judged last
	exempt []string
}

func (p *plain) count(s *policy.State, is func(v *policy.Verdict) bool) (n, unknown int) {
	before := p.seen
	p.seen = map[string]int{}
	for b := range s.Bindings() {
		for v := range s.Verdicts(b.Name, "") {
			id, of := b.Name+" "+v.Subject.String(), len(v.Violations)
			if v.State == policy.Error {
				of = before[id]
			}
			p.seen[id] = of
			name := v.Subject.Ref.Name
			if v.Subject.Key != "" {
				name = v.Subject.Key
			}
			if name == "" {
				name = v.Subject.Ref.Member
			}
			if slices.Contains(p.exempt, name) || !is(&v) {
				continue
			}
			if n += of; v.State != policy.Known {
				unknown += of
			}
		}
	}
	return n, unknown
}

func TestAlerts_AddUpToAPlainCount(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	members := []string{"fleet/a", "fleet/b", "fleet/c"}
	w := newWorld(t, members...)
	p := &plain{}
	pods := []string{"a", "b", "c", "d", "e"}
	label := regexp.MustCompile(`^[a-z]+$`)
	most, doubts := 0, 0
	for step := range 200 {
		for range r.IntN(4) {
			member, name := members[r.IntN(3)], pods[r.IntN(5)]
			switch r.IntN(8) {
			case 0:
				w.scopes[member].Delete("shop", name)
			case 1:
				w.put(member, name, "x")
			case 2, 3:
				w.put(member, name, "Running")
			default:
				w.put(member, name, "Failed", []string{"OOM", "Evicted", "Lost"}[:1+r.IntN(3)]...)
			}
		}
		if r.IntN(5) == 0 {
			w.status(t, members[r.IntN(3)], []aggregate.State{aggregate.Synced, aggregate.Stale}[r.IntN(2)])
		}
		s := w.judge(t)
		p.count(s, func(*policy.Verdict) bool { return true }) // what is seen before it is exempt
		if r.IntN(6) == 0 {
			p.exempt = nil
			for _, name := range append(pods, "Failed", "fleet/b") {
				if r.IntN(4) == 0 {
					p.exempt = append(p.exempt, name)
				}
			}
			w.exempt(t, p.exempt...)
			s = w.judge(t)
		}
		var by []string
		for _, field := range []string{"Policy", "Member", "Severity", "Kind", "Namespace", "Object"} {
			if r.IntN(3) == 0 {
				by = append(by, field)
			}
		}
		severe := r.IntN(2) == 0
		rule := selection.Rule{Types: []string{"Violation"}}
		if severe {
			rule.Severities = []string{"high", "critical"}
		}
		away := members[r.IntN(3)]
		want, unknown := p.count(s, func(v *policy.Verdict) bool {
			return v.Subject.Ref.Member != away && (!severe || v.Binding == "failed" || v.Binding == "versions")
		})
		got, doubt, labels := 0, 0, map[string]bool{}
		for _, a := range newAlerts(t, step%2 == 0, by, rule).Open(s, func(member string) bool { return member != away }) {
			got, doubt = got+a.Violations, doubt+a.Unknown
			for name, value := range a.Labels {
				if !label.MatchString(name) || value == "" {
					t.Errorf("label %q is %q", name, value)
				}
			}
			if id := fmt.Sprint(a.Labels); labels[id] {
				t.Fatalf("two alerts have labels %s", id)
			} else {
				labels[id] = true
			}
		}
		if got != want || doubt != unknown {
			t.Fatalf("step %d: by %v %d violations are open, %d of them in doubt; counted are %d and %d; exempt %v", step, by, got, doubt, want, unknown, p.exempt)
		}
		most, doubts = max(most, got), max(doubts, doubt)
	}
	t.Logf("up to %d violations, %d of them in doubt", most, doubts)
	if most < 10 || doubts < 5 {
		t.Errorf("up to %d violations and %d in doubt: that says little", most, doubts)
	}
}

// TestAlerts_KeysOfViewsAreText: without text their label tells them apart, and no more.
func TestAlerts_KeysOfViewsAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a")
	for i := range 8 {
		w.put("fleet/a", fmt.Sprint("p", i), []string{"intranet", "extranet"}[i%2])
	}
	s := w.judge(t)
	for _, text := range []bool{false, true} {
		seen := map[string]bool{}
		for _, x := range newAlerts(t, text, []string{"Policy", "Object"}, selection.Rule{Policies: []string{"phases"}}).Open(s, nil) {
			if key := x.Labels["key"]; key == "" || strings.Contains(key, "tranet") != text {
				t.Errorf("with text %v: %v", text, x.Labels)
			}
			seen[x.Labels["key"]] = true
		}
		if len(seen) != 2 {
			t.Errorf("the keys are %v", seen)
		}
	}
}

// TestAlerts_OthersAreOneAlert: it does not end and begin with each group that comes.
func TestAlerts_OthersAreOneAlert(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "fleet/a")
	a := newAlerts(t, false, []string{"Object"}, selection.Rule{Policies: []string{"failed"}})
	var labels []string
	for i := range 1003 {
		w.put("fleet/a", fmt.Sprintf("a%04d", i), "Failed", "OOM")
		if i >= 1001 {
			got := a.Open(w.judge(t), nil)
			labels = append(labels, fmt.Sprint(got[len(got)-1].Labels))
		}
	}
	if labels[0] != labels[1] {
		t.Errorf("%s became %s", labels[0], labels[1])
	}
}
