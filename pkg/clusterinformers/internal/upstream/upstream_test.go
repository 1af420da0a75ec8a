package upstream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/upstream"
)

const whole = `{"kind":"MemberList","apiVersion":"query.federator.dev/v1","revision":"7","items":[
 {"name":"fleet/eu-1","labels":{"tier":"gold"},"version":"v1.36.3","scopes":{"Synced":3,"Stale":1},"objects":4,"bytes":9,"notSynced":[],
  "facts":{"uid":"u1","cluster":{"annotations":{"b":"2","a":"1"},"paused":true,"conditions":[{"type":"Ready","status":"True"},{"type":"Ready","status":"False"}],"class":"c","version":"v1"},
  "serves":["Pod","Deployment.apps"],"silent":["metrics.k8s.io"],"via":["x"]}},
 {"name":"fleet/eu-2","facts":{"cluster":{},"serves":null}}],"installation":"region","continue":"more"}`

func TestParse(t *testing.T) {
	p, err := upstream.Parse([]byte(whole), 2)
	if err != nil {
		t.Fatal(err)
	}
	if p.Installation != "region" || p.Continue != "more" || p.Partial || len(p.Members) != 2 {
		t.Errorf("%+v", p)
	}
	m := p.Members[0]
	if m.Name != "fleet/eu-1" || m.UID != "u1" || !slices.Equal(m.Labels, []aggregate.Label{{Key: "tier", Value: "gold"}}) || !slices.Equal(m.Via, []string{"x"}) ||
		!m.Cluster.Paused || m.Cluster.Annotations[0].Key != "a" || len(m.Cluster.Conditions) != 1 || m.Cluster.Class != "c" || m.Scopes == "" {
		t.Errorf("%+v", m)
	}
	for kind, lacks := range map[aggregate.Kind]bool{"Pod": false, "Deployment.apps": false, "Node": true, "PodMetrics.metrics.k8s.io": false} {
		if m.Facts.Lacks(kind) != lacks {
			t.Errorf("Lacks(%s) is not %t", kind, lacks)
		}
	}
	if p.Members[1].Facts.Lacks("Node") {
		t.Error("what is not known is said to be lacking")
	}
}

func TestParse_RefusesWhatMakesNoSense(t *testing.T) {
	for name, change := range map[string][2]string{
		"no installation":            {`"installation":"region"`, `"installation":""`},
		"an installation of lines":   {`"installation":"region"`, `"installation":"a\nb"`},
		"another kind":               {`"MemberList"`, `"PodList"`},
		"no facts":                   {`,"facts":{"cluster":{},"serves":null}`, ``},
		"a member twice":             {`fleet/eu-2`, `fleet/eu-1`},
		"members in another order":   {`fleet/eu-2`, `fleet/a`},
		"a label that is none":       {`"tier":"gold"`, `"tier":"g o l d"`},
		"a via that is none":         {`"via":["x"]`, `"via":["x,y"]`},
		"scopes in an unknown state": {`"Stale":1`, `"Odd":1`},
		"a huge member":              {`"tier":"gold"`, `"tier":"` + strings.Repeat("g", 600<<10) + `"`},
		"annotations without end":    {`"b":"2"`, `"b":"` + strings.Repeat("g", 100<<10) + `"`},
		"half of it":                 {`,"continue":"more"}`, ``},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if text == whole {
			t.Fatalf("%s: nothing has changed", name)
		}
		if _, err := upstream.Parse([]byte(text), 2); !errors.Is(err, upstream.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := upstream.Parse([]byte(whole), 1); !errors.Is(err, upstream.ErrMalformed) {
		t.Errorf("more than was asked for: %v", err)
	}
}

func TestMemberName(t *testing.T) {
	for name, want := range map[string]string{
		"fleet/eu-1": "eu/fleet.eu-1", "fleet/a.b": "eu/fleet.a.b", "us/fleet.eu-1": "eu/us.fleet.eu-1",
		"fleet": "", "a/b/c": "", "a.b/c": "", "Fleet/a": "", "fleet/": "", "/a": "", "fleet/../x": "",
		"fleet/" + strings.Repeat("a", 250): "",
	} {
		if is, ok := upstream.MemberName("eu", name); is != want || ok != (want != "") {
			t.Errorf("MemberName(%.40q) = %.60q, %t", name, is, ok)
		}
	}
}

// FuzzParse: whatever a federator answers, what is believed of it is bounded, in order and fit to be named.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"kind":"MemberList","installation":"a","items":null}`))
	f.Add([]byte(`{"kind":"MemberList","installation":"a","items":[],"items":[]}`))
	f.Add([]byte(`{"items":[` + strings.Repeat(`{},`, 100) + `{}],"kind":"MemberList"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		const most = 3
		p, err := upstream.Parse(body, most)
		if err != nil {
			if !errors.Is(err, upstream.ErrMalformed) {
				t.Errorf("%v", err)
			}
			return
		}
		names := map[string]string{}
		for i, m := range p.Members {
			if i > 0 && p.Members[i-1].Name >= m.Name {
				t.Errorf("%q before %q", p.Members[i-1].Name, m.Name)
			}
			if !slices.IsSorted(m.Facts.Serves) || !slices.IsSorted(m.Facts.Silent) || !slices.IsSortedFunc(m.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) }) {
				t.Errorf("not in order: %+v", m)
			}
			if name, ok := upstream.MemberName("eu", m.Name); ok {
				if other, taken := names[name]; taken {
					t.Errorf("%q and %q have one name", other, m.Name)
				}
				names[name] = m.Name
			}
		}
		if len(p.Members) > most {
			t.Error(fmt.Sprint(len(p.Members), " members"))
		}
	})
}
