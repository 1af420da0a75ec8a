package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/sim/siblings"
)

// appSet is a fleet of real Pods, Deployments and Ingresses in several members. Each
// Deployment has namesakes in others, and each host two more Ingresses.
type appSet struct {
	index  *aggregate.Index
	scopes map[aggregate.Kind][]*aggregate.Scope // by member
	counts map[aggregate.Kind]int                // of each member
	bodies map[aggregate.Kind][]template
}

// template is a real object's body in variants: what comes and goes while it lives.
type template struct {
	labels             []aggregate.Label
	variants, statuses [][]byte // that differ in the image, and in the status
}

const (
	appMembers  = 20
	namesakes   = 4 // members that have a Deployment
	variants    = 4
	pod         = aggregate.Kind("Pod")
	deployment  = aggregate.Kind("Deployment.apps")
	ingress     = aggregate.Kind("Ingress.networking.k8s.io")
	hostSharers = 3
)

var appVersions = map[aggregate.Kind]string{pod: "v1", deployment: "apps/v1", ingress: "networking.k8s.io/v1"}

// mixed is what most fleets hold, in percent.
var mixed = map[aggregate.Kind]int{pod: 80, deployment: 17, ingress: 3}

// newAppSet fills an index with so many objects, by kind in percent. Kinds that
// policies read beside them are there, and empty.
func newAppSet(ctx context.Context, corpus string, objects int, shares map[aggregate.Kind]int, others []aggregate.Kind) (*appSet, error) {
	return newAppSetIn(ctx, corpus, appMembers, objects, shares, others)
}

// newAppSetIn is newAppSet in so many members.
func newAppSetIn(ctx context.Context, corpus string, members, objects int, shares map[aggregate.Kind]int, others []aggregate.Kind) (*appSet, error) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), LogBytes: 8 << 20}) // which a run of seconds fills
	if err != nil {
		return nil, err
	}
	each := max(objects/members, 20)
	s := &appSet{
		index: x, scopes: map[aggregate.Kind][]*aggregate.Scope{}, bodies: map[aggregate.Kind][]template{},
		counts: map[aggregate.Kind]int{},
	}
	for kind, share := range shares {
		s.counts[kind] = each * share / 100
	}
	c := siblings.Open(corpus)
	pods, err := c.Pods(1000, 100, 1)
	if err != nil {
		return nil, err
	}
	deployments, err := c.Objects("apps_Deployment", 300, 1)
	if err != nil {
		return nil, err
	}
	for kind, from := range map[aggregate.Kind]interface {
		JSON(i int) ([]byte, error)
		Len() int
	}{pod: pods, deployment: deployments} {
		for i := range from.Len() {
			raw, err := from.JSON(i)
			if err != nil {
				return nil, err
			}
			t, err := newTemplate(raw, kind)
			if err != nil {
				return nil, err
			}
			s.bodies[kind] = append(s.bodies[kind], t)
		}
	}
	for m := range members {
		name := s.member(m)
		if err := x.PutMember(aggregate.Member{Name: name, UID: name, Version: "v1.36.3"}); err != nil {
			return nil, err
		}
		for kind, version := range appVersions {
			if err := s.open(m, kind, version, s.counts[kind]); err != nil {
				return nil, err
			}
		}
		for _, kind := range others {
			if appVersions[kind] == "" {
				if err := s.open(m, kind, "v1", 0); err != nil {
					return nil, err
				}
			}
		}
		for more := true; more; {
			if _, more, err = x.Train(ctx.Done()); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *appSet) member(m int) string { return "bench/member-" + strconv.Itoa(m) }

func (s *appSet) open(m int, kind aggregate.Kind, version string, n int) error {
	scope, err := s.index.OpenScope(s.member(m), kind, version)
	if err != nil {
		return err
	}
	s.scopes[kind] = append(s.scopes[kind], scope)
	items := make([]aggregate.Item, 0, n)
	for i := range n {
		items = append(items, s.item(kind, m, i, 0, false))
	}
	_, err = scope.Replace(items, aggregate.Status{State: aggregate.Synced})
	return err
}

// item is an object at a version, which says its variant: of the status or the rest.
func (s *appSet) item(kind aggregate.Kind, m, i, version int, status bool) aggregate.Item {
	rec := aggregate.Record{
		Namespace: namespaceOf(i), Name: nameOf(kind, m, i),
		UID: fmt.Sprintf("%s-%d-%d", kind, m, i), ResourceVersion: strconv.Itoa(version + 1),
		Update: version > 0, // as watches say it
	}
	if kind == ingress {
		rec.Body = ingressBody(rec.Namespace, rec.Name, s.host(m, i)+version/20%2)
	} else {
		t := s.bodies[kind][i%len(s.bodies[kind])]
		rec.Labels, rec.Body = t.labels, t.variants[version/2%variants]
		if status {
			rec.Body = t.statuses[version/2%variants]
		}
	}
	return s.scopes[kind][m].Item(&rec)
}

func namespaceOf(i int) string { return fmt.Sprintf("team-%d", i%50) }

func nameOf(kind aggregate.Kind, m, i int) string {
	if kind == deployment {
		m /= namesakes
	}
	return fmt.Sprintf("app-%02d-%06d", m, i)
}

// host is the one that an Ingress serves first: hostSharers in a row have the same.
func (s *appSet) host(m, i int) int { return (m*s.counts[ingress] + i) / hostSharers }

func ingressBody(namespace, name string, host int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":%q,"namespace":%q},"spec":{"rules":[{"host":"h%d.example.org","http":{"paths":[{"backend":{"service":{"name":"web","port":{"number":80}}},"path":"/","pathType":"Prefix"}]}}],"tls":[{"hosts":["h%[3]d.example.org"]}]}}`, name, namespace, host)
}

func newTemplate(raw []byte, kind aggregate.Kind) (template, error) {
	var t template
	for v := range variants {
		for _, status := range []bool{false, true} {
			var body map[string]any
			d := json.NewDecoder(bytes.NewReader(raw))
			d.UseNumber()
			if err := d.Decode(&body); err != nil {
				return t, err
			}
			meta, _ := body["metadata"].(map[string]any)
			delete(meta, "managedFields")
			if status {
				state, _ := body["status"].(map[string]any)
				if state == nil {
					state = map[string]any{}
				}
				state["message"] = fmt.Sprint("beat ", v)
				body["status"] = state
			} else if v > 0 {
				retag(body, kind, v)
			}
			var out bytes.Buffer
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(body); err != nil {
				return t, err
			}
			text := bytes.TrimSpace(out.Bytes())
			if status {
				t.statuses = append(t.statuses, text)
				continue
			}
			t.variants = append(t.variants, text)
			if v == 0 {
				ls, _ := meta["labels"].(map[string]any)
				for k, x := range ls {
					t.labels = append(t.labels, aggregate.Label{Key: k, Value: fmt.Sprint(x)})
				}
			}
		}
	}
	return t, nil
}

// retag gives the containers another image.
func retag(body map[string]any, kind aggregate.Kind, v int) {
	at := body["spec"]
	if kind == deployment {
		spec, _ := at.(map[string]any)
		t, _ := spec["template"].(map[string]any)
		at = t["spec"]
	}
	spec, _ := at.(map[string]any)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok {
			c["image"] = fmt.Sprintf("registry.example.org/app:v%d", v)
		}
	}
}

// kindsOf returns the kinds that policies evaluate or read, each once.
func kindsOf(set *policy.Set) (kinds []aggregate.Kind) {
	all, _ := set.Kinds()
	for _, k := range all {
		if !slices.Contains(kinds, k.Kind) {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}
