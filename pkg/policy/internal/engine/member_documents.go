package engine

import (
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
)

func (ev *evaluation) names() ast.Value {
	var names []*ast.Term
	for m := range ev.w.e.snapshot.Members() {
		if ev.binding.visible.Has(m.Name) {
			names = append(names, ast.StringTerm(m.Name))
		}
	}
	return ast.NewArray(names...)
}

func (ev *evaluation) members(path []string) (ast.Value, []string, error) {
	parts := ev.binding.fleetParts
	if len(path) > 0 {
		ev.recordMember(path)
		m, ok := ev.w.e.snapshot.Member(path[0])
		if !ok || !ev.binding.visible.Has(path[0]) {
			return nil, nil, nil
		}
		if len(path) == 1 {
			return fleetdoc.MemberDocument(&m, parts), nil, ev.charge(int64(fleetdoc.Size(&m, parts)))
		}
		return fleetdoc.MemberField(&m, path[1]), path[2:], ev.charge(int64(fleetdoc.Size(&m, fleetdoc.Fields[path[1]])))
	}
	ev.record(readKey(readMembers))
	ev.wideReads++
	t := fleetdoc.NewTree(nil)
	for m := range ev.w.e.snapshot.Members() {
		if !ev.binding.visible.Has(m.Name) {
			continue
		}
		if err := ev.charge(int64(fleetdoc.Size(&m, parts))); err != nil {
			return nil, nil, err
		}
		t.Put(fleetdoc.MemberDocument(&m, parts), []string{m.Name})
	}
	return t.Value(), nil, nil
}

// recordMember records what is read of a member: conditions and annotations change by
// themselves, and are read one by one.
func (ev *evaluation) recordMember(path []string) {
	part := fleetdoc.Parts(0)
	if len(path) > 1 {
		part = fleetdoc.Fields[path[1]]
	}
	switch {
	case part == 0:
		ev.record(readKey(readMember, path[0]))
	case len(path) > 2 && part&(fleetdoc.Conditions|fleetdoc.Annotations) != 0:
		ev.record(readKey(readMemberPart, path[0], path[1], path[2]))
	default:
		ev.record(readKey(readMemberPart, path[0], path[1]))
	}
}

// setMemberTerms makes input.member of all members, with the parts that any binding reads.
func (e *Engine) setMemberTerms() {
	e.memberTerms, e.memberParts = map[string]*ast.Term{}, 0
	for _, b := range e.bindings {
		e.memberParts |= b.inputParts
	}
	for m := range e.snapshot.Members() {
		e.memberTerms[m.Name] = fleetdoc.MemberTerm(&m, e.memberParts)
	}
}

// invalidateMember marks the subjects that read what differs of a member. One that
// joined or left differs in everything.
func (r *pass) invalidateMember(d aggregate.MemberDelta) {
	before, after := d.Before, d.After
	changed := fleetdoc.AllParts
	switch {
	case before == nil:
		before = &aggregate.Member{Name: after.Name}
	case after == nil:
		after = &aggregate.Member{Name: before.Name}
	default:
		changed = fleetdoc.Changed(before, after)
	}
	name := before.Name
	r.invalidate(readKey(readMembers))
	r.invalidate(readKey(readMember, name))
	for field, part := range fleetdoc.Fields {
		if changed&part != 0 {
			r.invalidate(readKey(readMemberPart, name, field))
		}
	}
	if changed&fleetdoc.Annotations != 0 {
		for key := range differingKeys(annotationsOf(before), annotationsOf(after)) {
			r.invalidate(readKey(readMemberPart, name, "annotations", key))
		}
	}
	if changed&fleetdoc.Conditions != 0 {
		for key := range differingKeys(conditionsOf(before), conditionsOf(after)) {
			r.invalidate(readKey(readMemberPart, name, "conditions", key))
		}
	}
}

func annotationsOf(m *aggregate.Member) map[string]string {
	out := make(map[string]string, len(m.Cluster.Annotations))
	for _, l := range m.Cluster.Annotations {
		out[l.Key] = l.Value
	}
	return out
}

func conditionsOf(m *aggregate.Member) map[string]aggregate.Condition {
	out := make(map[string]aggregate.Condition, len(m.Cluster.Conditions))
	for _, c := range m.Cluster.Conditions {
		out[c.Type] = c
	}
	return out
}

// differingKeys returns the keys under which two maps differ.
func differingKeys[V comparable](a, b map[string]V) map[string]bool {
	keys := map[string]bool{}
	for k := range maps.Keys(a) {
		if v, ok := b[k]; !ok || v != a[k] {
			keys[k] = true
		}
	}
	for k := range maps.Keys(b) {
		if _, ok := a[k]; !ok {
			keys[k] = true
		}
	}
	return keys
}
