package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// world is an index that a history writes.
type world struct {
	index   *aggregate.Index
	scopes  map[[2]string]*aggregate.Scope // by member and kind
	objects map[aggregate.Ref]map[string]any
	members map[string]bool
	version int
}

func newWorld() (*world, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	return &world{index: index, scopes: map[[2]string]*aggregate.Scope{}, objects: map[aggregate.Ref]map[string]any{}, members: map[string]bool{}}, nil
}

// op is one operation on a fleet. What cannot happen, because of the ops
// that a shrunken history is without, does nothing.
type op struct {
	Do      string // put, delete, join, leave, rejoin, relabel, cluster, status, reopen
	Member  string
	Kind    aggregate.Kind    `json:",omitempty"`
	NS      string            `json:",omitempty"`
	Name    string            `json:",omitempty"`
	UID     int               `json:",omitempty"`
	Object  map[string]any    `json:",omitempty"` // without what the op says
	Version string            `json:",omitempty"` // API version of reopen, or of the member
	Labels  map[string]string `json:",omitempty"` // of the member
	APIs    []string          `json:",omitempty"` // of the member
	Cluster aggregate.Cluster // of the member
	State   aggregate.State
}

func (o op) String() string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// canonical writes JSON as the index holds it.
func canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

func (w *world) member(o op) aggregate.Member {
	m := aggregate.Member{Name: o.Member, UID: fmt.Sprintf("%s-%d", o.Member, o.UID), Version: o.Version, APIs: o.APIs, Cluster: o.Cluster}
	for _, k := range slices.Sorted(maps.Keys(o.Labels)) {
		m.Labels = append(m.Labels, aggregate.Label{Key: k, Value: o.Labels[k]})
	}
	return m
}

func (w *world) do(o op) error {
	at := [2]string{o.Member, string(o.Kind)}
	switch o.Do {
	case "join":
		if w.members[o.Member] {
			return nil
		}
		w.members[o.Member] = true
		return w.index.PutMember(w.member(o))
	case "relabel":
		if !w.members[o.Member] {
			return nil
		}
		now, _ := w.index.Snapshot().Member(o.Member)
		next := w.member(o)
		next.UID = now.UID
		return w.index.PutMember(next)
	case "cluster":
		next, _ := w.index.Snapshot().Member(o.Member)
		if !w.members[o.Member] {
			return nil
		}
		next.Cluster = o.Cluster
		return w.index.PutMember(next)
	case "rejoin":
		return w.rejoin(o)
	case "leave":
		w.index.RemoveMember(o.Member)
		delete(w.members, o.Member)
		for k := range w.scopes {
			if k[0] == o.Member {
				delete(w.scopes, k)
			}
		}
		for ref := range w.objects {
			if ref.Member == o.Member {
				delete(w.objects, ref)
			}
		}
		return nil
	}
	scope := w.scopes[at]
	if o.Do == "reopen" {
		return w.reopen(o, scope)
	}
	if scope == nil {
		return nil
	}
	ref := aggregate.Ref{Member: o.Member, Kind: o.Kind, Namespace: o.NS, Name: o.Name}
	switch o.Do {
	case "put":
		w.objects[ref] = map[string]any{"object": o.Object, "uid": o.UID}
		item, err := w.item(scope, ref)
		if err != nil {
			return err
		}
		scope.Upsert(item)
	case "delete":
		delete(w.objects, ref)
		scope.Delete(o.NS, o.Name)
	case "status":
		scope.SetStatus(aggregate.Status{State: o.State, Reason: "test"})
	default:
		return fmt.Errorf("no such op: %s", o.Do)
	}
	_, err := scope.Commit()
	return err
}

// rejoin has a member leave and join as another one of its name, with the objects that
// it had.
func (w *world) rejoin(o op) error {
	if !w.members[o.Member] {
		return nil
	}
	var opens []op
	for info := range w.index.Snapshot().Scopes(o.Member) {
		opens = append(opens, op{Do: "reopen", Member: o.Member, Kind: info.Kind, Version: info.Version, State: info.Status.State})
	}
	kept := maps.Clone(w.objects)
	if err := w.do(op{Do: "leave", Member: o.Member}); err != nil {
		return err
	}
	join := o
	join.Do = "join"
	if err := w.do(join); err != nil {
		return err
	}
	for ref, object := range kept {
		if ref.Member == o.Member {
			w.objects[ref] = object
		}
	}
	for _, open := range opens {
		if err := w.do(open); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens a scope, or opens it again at another version.
func (w *world) reopen(o op, scope *aggregate.Scope) error {
	if !w.members[o.Member] {
		return nil
	}
	if scope != nil {
		scope.Close()
	}
	scope, err := w.index.OpenScope(o.Member, o.Kind, o.Version)
	if err != nil {
		return err
	}
	w.scopes[[2]string{o.Member, string(o.Kind)}] = scope
	var items []aggregate.Item
	for ref := range w.objects {
		if ref.Member == o.Member && ref.Kind == o.Kind {
			item, err := w.item(scope, ref)
			if err != nil {
				return err
			}
			items = append(items, item)
		}
	}
	_, err = scope.Replace(items, aggregate.Status{State: o.State})
	return err
}

func (w *world) item(scope *aggregate.Scope, ref aggregate.Ref) (aggregate.Item, error) {
	w.version++
	held := w.objects[ref]
	kind, _ := ref.Kind.Split()
	info, _ := w.index.Snapshot().Scope(ref.Member, ref.Kind)
	meta := map[string]any{"name": ref.Name, "uid": fmt.Sprint(ref, held["uid"]), "resourceVersion": fmt.Sprint(w.version)}
	if ref.Namespace != "" {
		meta["namespace"] = ref.Namespace
	}
	object := map[string]any{"apiVersion": info.Version, "kind": kind, "metadata": meta}
	var labels []aggregate.Label
	for k, v := range held["object"].(map[string]any) { // do put it there.
		if k != "metadata" {
			object[k] = v
			continue
		}
		more, _ := v.(map[string]any)
		for k, v := range more {
			meta[k] = v
		}
		set, _ := more["labels"].(map[string]any)
		for key, value := range set {
			labels = append(labels, aggregate.Label{Key: key, Value: fmt.Sprint(value)})
		}
	}
	slices.SortFunc(labels, func(a, b aggregate.Label) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	body, err := canonical(object)
	return scope.Item(&aggregate.Record{
		Namespace: ref.Namespace, Name: ref.Name, UID: fmt.Sprint(meta["uid"]), ResourceVersion: fmt.Sprint(w.version),
		Labels: labels, Body: body,
	}), err
}

// land is where histories take place.
type land struct {
	kinds    []aggregate.Kind
	packages []string                  // that are bound; nil: all
	versions map[aggregate.Kind]string // API versions that scopes are mostly held at
	// object returns an object of a kind without what an op says of it.
	object func(r *rand.Rand, kind aggregate.Kind) (namespace, name string, object map[string]any)
	// member says what may be known of a member.
	member     func(r *rand.Rand, o *op)
	parameters func(r *rand.Rand, pkg *policy.Package) map[string]any
	passes     func(r *rand.Rand) int64           // seconds between two steps; nil: time stands still
	documents  func(r *rand.Rand) *worldDocuments // from outside the fleet, of a step; nil: there are none
	write      func(seed uint64) *history         // instead of the common one
	start      int64                              // 0: worldStart
	share      int                                // how many lands share the histories that are asked for; 0: one
}

var (
	worldMembers = []string{"fleet/a", "fleet/b", "fleet/c"}
	worldKinds   = []aggregate.Kind{"Deployment.apps", "Ingress.networking.k8s.io", "Namespace", "PodDisruptionBudget.policy"}
	worldStates  = []aggregate.State{
		aggregate.Synced, aggregate.Synced, aggregate.Synced, aggregate.Unknown, aggregate.NotServed, aggregate.Forbidden,
		aggregate.Syncing, aggregate.Partial, aggregate.Stale, aggregate.OverBudget,
	}
	// small is a land whose objects are so alike that one policy fits every kind.
	small = &land{kinds: worldKinds, versions: heldVersions(worldKinds), object: smallObject, member: smallMember, parameters: smallParameters}
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func heldVersions(kinds []aggregate.Kind) map[aggregate.Kind]string {
	versions := map[aggregate.Kind]string{}
	for _, kind := range kinds {
		versions[kind] = heldVersion(kind)
	}
	return versions
}

func heldVersion(kind aggregate.Kind) string {
	if _, group := kind.Split(); group != "" {
		return group + "/v1"
	}
	return "v1"
}

// op returns something that may happen.
func (l *land) op(r *rand.Rand) op {
	o := op{Member: pick(r, worldMembers...), Kind: pick(r, l.kinds...)}
	switch r.IntN(23) {
	case 21, 22:
		o.Do, o.Kind = "cluster", ""
		o.Cluster = smallCluster(r)
	case 20:
		o.Do, o.Kind, o.UID = "rejoin", "", r.IntN(1000)
		l.member(r, &o)
	case 0:
		o.Do, o.Kind, o.UID = "join", "", r.IntN(1000)
		l.member(r, &o)
	case 1:
		o.Do, o.Kind = "leave", ""
	case 2:
		o.Do, o.Kind = "relabel", ""
		l.member(r, &o)
	case 3, 4:
		o.Do, o.State = "status", pick(r, worldStates...)
	case 5:
		o.Do, o.State, o.Version = "reopen", pick(r, aggregate.Synced, aggregate.Synced, aggregate.Partial), l.versions[o.Kind]
		if r.IntN(4) == 0 {
			o.Version += "beta1"
		}
	case 6, 7, 8:
		o.Do = "delete"
		o.NS, o.Name, _ = l.object(r, o.Kind)
	default:
		o.Do, o.UID = "put", r.IntN(2)
		o.NS, o.Name, o.Object = l.object(r, o.Kind)
	}
	return o
}

// populate lets the fleet begin with some members and all of their scopes.
func (l *land) populate(r *rand.Rand) []op {
	var ops []op
	for _, m := range worldMembers {
		join := op{Do: "join", Member: m, UID: 1}
		l.member(r, &join)
		ops = append(ops, join)
		ops = append(ops, l.open(m, func() aggregate.State {
			if r.IntN(20) == 0 {
				return pick(r, worldStates...)
			}
			return aggregate.Synced
		})...)
	}
	for range r.IntN(14) {
		o := op{Do: "put", Member: pick(r, worldMembers...), Kind: pick(r, l.kinds...)}
		o.NS, o.Name, o.Object = l.object(r, o.Kind)
		ops = append(ops, o)
	}
	if r.IntN(3) == 0 {
		ops = append(ops, l.crowd(r)...)
	}
	return ops
}

// crowd puts one object under several names: what most policies read of them is alike.
func (l *land) crowd(r *rand.Rand) []op {
	kind := pick(r, l.kinds...)
	_, _, object := l.object(r, kind)
	var ops []op
	for range 4 + r.IntN(8) {
		o := op{Do: "put", Member: pick(r, worldMembers...), Kind: kind, Object: object}
		o.NS, o.Name, _ = l.object(r, kind)
		ops = append(ops, o)
	}
	return ops
}

// open opens all scopes of a member.
func (l *land) open(member string, state func() aggregate.State) []op {
	var ops []op
	for _, kind := range l.kinds {
		ops = append(ops, op{Do: "reopen", Member: member, Kind: kind, Version: l.versions[kind], State: state()})
	}
	return ops
}

func smallMember(r *rand.Rand, o *op) {
	o.Version = pick(r, "v1.35.0", "v1.36.3")
	o.APIs = []string{"apps/" + o.Version, "v1"}
	if region := pick(r, "", "eu", "us"); region != "" {
		o.Labels = map[string]string{"region": region}
	}
	o.Cluster = smallCluster(r)
}

func smallCluster(r *rand.Rand) aggregate.Cluster {
	c := aggregate.Cluster{Paused: r.IntN(3) == 0}
	for _, key := range []string{"owner", "tier"} {
		if r.IntN(2) == 0 {
			c.Annotations = append(c.Annotations, aggregate.Label{Key: key, Value: pick(r, "shop", "pay")})
		}
	}
	for _, name := range []string{"Available", "Ready"} {
		if r.IntN(3) > 0 {
			c.Conditions = append(c.Conditions, aggregate.Condition{Type: name, Status: pick(r, "True", "False", ""), Reason: pick(r, "", "Rolling")})
		}
	}
	if r.IntN(2) == 0 {
		c.Class, c.Version = pick(r, "quick", "slow"), pick(r, "v1.35.0", "v1.36.3")
	}
	return c
}

func smallParameters(r *rand.Rand, pkg *policy.Package) map[string]any {
	for _, parameters := range []map[string]any{{"max": r.IntN(4)}, {"budget": r.IntN(8)}, {"home": pick(r, worldMembers...)}} {
		if _, problems := pkg.Parameters.Resolve(parameters); len(problems) == 0 {
			return parameters
		}
	}
	return nil
}

func smallObject(r *rand.Rand, kind aggregate.Kind) (namespace, name string, object map[string]any) {
	if kind == "Namespace" {
		name = pick(r, "shop", "pay")
	} else {
		namespace, name = pick(r, "shop", "shop", "pay"), pick(r, "web", "db")
	}
	object = map[string]any{}
	if r.IntN(3) > 0 {
		object["metadata"] = map[string]any{"labels": map[string]any{pick(r, "owner", "tier"): pick(r, "shop", "pay")}}
	}
	spec := map[string]any{}
	if r.IntN(8) > 0 {
		spec["replicas"] = r.IntN(5)
		spec["min"] = r.IntN(2)
	}
	if r.IntN(8) > 0 {
		spec["app"] = pick(r, "shop", "pay", "odd")
		spec["image"] = pick(r, "web:1", "web:2")
	}
	hosts := []any{}
	for range r.IntN(3) {
		hosts = append(hosts, pick(r, "a.example", "b.example", "c.example"))
	}
	if kind != "Deployment.apps" || r.IntN(4) == 0 {
		spec["hosts"] = hosts
	}
	if r.IntN(3) == 0 {
		spec["class"] = pick(r, "nginx", "envoy")
	}
	object["spec"] = spec
	if r.IntN(3) == 0 {
		object["status"] = map[string]any{"ready": r.IntN(5)}
	}
	return namespace, name, object
}
