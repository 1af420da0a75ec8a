package evaluation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/expansion"
)

// impliedMember has what is generated. The name is not one that manifests can give.
const impliedMember = "implied"

// impliedObject is an object that is generated, and the one in the manifests that implies it.
type impliedObject struct {
	expansion.Generated
	of aggregate.Ref
}

// impliedBatch is generated objects with different names, and one version of each kind.
type impliedBatch struct {
	member   string // that has what they are made of
	objects  map[aggregate.Ref]*impliedObject
	versions map[aggregate.Kind]string
}

// add adds an object, unless the batch has another in its place.
func (b *impliedBatch) add(x *impliedObject) bool {
	u := unstructured.Unstructured{Object: x.Object}
	gvk := u.GroupVersionKind()
	kind := aggregate.MakeKind(gvk.Kind, gvk.Group)
	ref := aggregate.Ref{Member: impliedMember, Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}
	if version, there := b.versions[kind]; there && version != u.GetAPIVersion() || b.objects[ref] != nil {
		return false
	}
	b.objects[ref], b.versions[kind] = x, u.GetAPIVersion()
	return true
}

// expand judges by constraints what the objects of manifests will become, where
// ExpansionTemplates say so, and adds what is found to the report.
func expand(ctx context.Context, b *policyfiles.Bundle, fleet *input.Fleet, budget time.Duration, r *report.Report) error {
	expansions, err := expansionsOf(b, fleet)
	if err != nil {
		return err
	}
	if len(expansions.Templates) == 0 {
		for _, m := range expansions.Mutators {
			r.Warnings = append(r.Warnings, m+": mutators are not applied")
		}
		return nil
	}
	if len(expansions.Mutators) > 0 {
		return fmt.Errorf("mutators are not applied to what ExpansionTemplates generate:\n%s", strings.Join(expansions.Mutators, "\n"))
	}
	batches, err := generate(expansions.Templates, fleet)
	if err != nil {
		return err
	}
	for _, batch := range batches {
		if err := batch.judge(ctx, b, fleet, budget, r); err != nil {
			return err
		}
	}
	r.Sort()
	return nil
}

// expansionsOf returns the ExpansionTemplates and mutators beside the policies and among
// the manifests.
func expansionsOf(b *policyfiles.Bundle, fleet *input.Fleet) (*policyfiles.Expansions, error) {
	out := &policyfiles.Expansions{}
	if b.Expansions != nil {
		out.Templates, out.Mutators = slices.Clone(b.Expansions.Templates), slices.Clone(b.Expansions.Mutators)
	}
	err := eachObject(fleet.Snapshot, "", func(o aggregate.Object) error {
		body, err := o.AppendBody(nil)
		if err != nil || !expansion.Mentions(body) {
			return err
		}
		object, err := decodeObject(body)
		if err != nil {
			return err
		}
		return out.Add(fleet.Manifests.Origin(o.Ref()).Source, object)
	})
	return out, err
}

// eachObject calls a function with all objects, of one member unless it is "".
func eachObject(s *aggregate.Snapshot, of string, do func(aggregate.Object) error) error {
	for m := range s.Members() {
		if of != "" && m.Name != of {
			continue
		}
		for scope := range s.Scopes(m.Name) {
			objects, err := s.List(aggregate.Query{Kind: scope.Kind, Members: []string{m.Name}})
			if err != nil {
				return err
			}
			for o := range objects {
				if err := do(o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// generate expands all objects.
func generate(templates expansion.Templates, fleet *input.Fleet) ([]*impliedBatch, error) {
	var out []*impliedBatch
	err := eachObject(fleet.Snapshot, "", func(o aggregate.Object) error {
		body, err := o.AppendBody(nil)
		if err != nil {
			return err
		}
		object, err := decodeObject(body)
		if err != nil {
			return err
		}
		made, err := templates.Expand(object)
		if err != nil {
			return fmt.Errorf("%s: %w", fleet.Manifests.Origin(o.Ref()).Source, err)
		}
		for _, g := range made {
			x := &impliedObject{Generated: g, of: o.Ref()}
			fits := func(b *impliedBatch) bool { return b.member == x.of.Member && b.add(x) }
			if !slices.ContainsFunc(out, fits) {
				b := &impliedBatch{member: x.of.Member, objects: map[aggregate.Ref]*impliedObject{}, versions: map[aggregate.Kind]string{}}
				b.add(x)
				out = append(out, b)
			}
		}
		return nil
	})
	return out, err
}

// judge evaluates the constraints on the batch. Its objects are no part of the inventory.
func (b *impliedBatch) judge(ctx context.Context, from *policyfiles.Bundle, fleet *input.Fleet, budget time.Duration, r *report.Report) error {
	bindings, err := b.bindings(from, fleet)
	if err != nil || len(bindings) == 0 {
		return err
	}
	snapshot, err := b.snapshot(fleet.Snapshot)
	if err != nil {
		return err
	}
	opts := Options(&policyfiles.Bundle{Set: from.Set, Bindings: bindings}, fleet.AsOf, budget)
	opts.InventoryMember, opts.Generated, opts.Manifests = b.member, true, fleet.AsGiven
	state, err := policy.Evaluate(ctx, opts, snapshot)
	if err != nil {
		return err
	}
	for binding := range state.Bindings() {
		g := collector{fleet: fleet, state: state, pkg: from.Set.Package(binding.Package), binding: binding.Name, report: r, implied: b}
		g.enforced = enforcementOf(from.Set, binding.Constraint)
		if err := g.collect(); err != nil {
			return err
		}
	}
	return nil
}

// bindings are those of constraints that select the member, for what it implies.
func (b *impliedBatch) bindings(from *policyfiles.Bundle, fleet *input.Fleet) ([]policy.Binding, error) {
	member, _ := fleet.Member(b.member)
	var out []policy.Binding
	for _, x := range from.Bindings {
		if x.Constraint == "" {
			continue
		}
		selects, err := x.Members.Compile()
		if err != nil {
			return nil, err
		}
		if selects(member) {
			x.Members = policy.MemberSelector{Names: []string{impliedMember}}
			out = append(out, x)
		}
	}
	return out, nil
}

// snapshot has the objects of the batch beside the member that they are made of.
func (b *impliedBatch) snapshot(of *aggregate.Snapshot) (*aggregate.Snapshot, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	member, _ := of.Member(b.member)
	for _, m := range []aggregate.Member{member, {Name: impliedMember, UID: impliedMember}} {
		if err := index.PutMember(m); err != nil {
			return nil, err
		}
	}
	for info := range of.Scopes(b.member) {
		var records []*aggregate.Record
		objects, err := of.List(aggregate.Query{Kind: info.Kind, Members: []string{b.member}})
		if err != nil {
			return nil, err
		}
		for o := range objects {
			rec := &aggregate.Record{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Labels: o.Labels()}
			if rec.Body, err = o.AppendBody(nil); err != nil {
				return nil, err
			}
			records = append(records, rec)
		}
		if err := fill(index, b.member, info.Kind, info.Version, records); err != nil {
			return nil, err
		}
		if _, there := b.versions[info.Kind]; !there {
			if err := fill(index, impliedMember, info.Kind, info.Version, nil); err != nil {
				return nil, err
			}
		}
	}
	if err := b.fill(index); err != nil {
		return nil, err
	}
	return index.Snapshot(), nil
}

// fill adds the objects of the batch.
func (b *impliedBatch) fill(index *aggregate.Index) error {
	records := map[aggregate.Kind][]*aggregate.Record{}
	for ref, x := range b.objects {
		u := unstructured.Unstructured{Object: x.Object}
		body, err := json.Marshal(x.Object)
		if err != nil {
			return err
		}
		rec := &aggregate.Record{Namespace: ref.Namespace, Name: ref.Name, UID: ref.String(), ResourceVersion: "1", Body: body}
		labels := u.GetLabels()
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			rec.Labels = append(rec.Labels, aggregate.Label{Key: key, Value: labels[key]})
		}
		records[ref.Kind] = append(records[ref.Kind], rec)
	}
	for kind, list := range records {
		if err := fill(index, impliedMember, kind, b.versions[kind], list); err != nil {
			return err
		}
	}
	return nil
}

func fill(index *aggregate.Index, member string, kind aggregate.Kind, version string, records []*aggregate.Record) error {
	scope, err := index.OpenScope(member, kind, version)
	if err != nil {
		return err
	}
	defer scope.Close()
	items := make([]aggregate.Item, 0, len(records))
	for _, rec := range records {
		items = append(items, scope.Item(rec))
	}
	_, err = scope.Replace(items, aggregate.Status{State: aggregate.Synced})
	return err
}

// generated returns what a subject is, if it was generated.
func (g *collector) generated(s policy.Subject) *impliedObject {
	if g.implied == nil {
		return nil
	}
	return g.implied.objects[s.Ref]
}

// given returns the subject that was given, which a generated one is implied by.
func (g *collector) given(s policy.Subject) policy.Subject {
	if x := g.generated(s); x != nil {
		return policy.Subject{Ref: x.of}
	}
	return s
}

// message returns a message about a subject as one about what was given.
func (g *collector) message(s policy.Subject, text string) string {
	if x := g.generated(s); x != nil {
		return x.Message(text)
	}
	return text
}
