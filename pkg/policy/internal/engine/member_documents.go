package engine

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/value"
)

func (ev *evaluation) names() value.Value {
	var names []value.Value
	for m := range ev.w.e.fleet.Members() {
		if ev.binding.visible.Has(m.Name) {
			names = append(names, value.Text(m.Name))
		}
	}
	return value.ArrayOf(names)
}

func (ev *evaluation) members(path []string) (value.Value, []string, error) {
	parts := ev.binding.fleetParts
	if len(path) > 0 {
		ev.recordMember(path)
		m, ok := ev.w.e.fleet.Member(path[0])
		if !ok || !ev.binding.visible.Has(path[0]) {
			return value.Value{}, nil, nil
		}
		if len(path) == 1 {
			return fleetdoc.MemberDocument(&m, parts), nil, ev.charge(int64(fleetdoc.Size(&m, parts)))
		}
		return fleetdoc.MemberField(&m, path[1]), path[2:], ev.charge(int64(fleetdoc.Size(&m, fleetdoc.Fields[path[1]])))
	}
	ev.record(ev.binding.membersKey())
	ev.wideReads++
	t := fleetdoc.NewTree(nil)
	for m := range ev.w.e.fleet.Members() {
		if !ev.binding.visible.Has(m.Name) {
			continue
		}
		if err := ev.charge(int64(fleetdoc.Size(&m, parts))); err != nil {
			return value.Value{}, nil, err
		}
		t.Put(fleetdoc.MemberDocument(&m, parts), []string{m.Name})
	}
	return t.Value(), nil, nil
}

// membersKey is the key of reads of all members as one document, which has what the binding reads of each.
func (b *boundBinding) membersKey() uint64 { return readKey(readMembers, viewName(b.id)) }

// memberKey is the key of reads of a member as one document, or of whether it is there.
func (b *boundBinding) memberKey(name string) uint64 {
	return readKey(readMember, viewName(b.id), name)
}

// recordMember records what is read of a member: conditions and annotations change by
// themselves, and are read one by one.
func (ev *evaluation) recordMember(path []string) {
	part := fleetdoc.Parts(0)
	if len(path) > 1 {
		part = fleetdoc.Fields[path[1]]
	}
	n := 2
	switch part {
	case 0:
		ev.record(ev.binding.memberKey(path[0]))
		return
	case fleetdoc.Annotations:
		n = 3
	case fleetdoc.Conditions:
		n = 4
	}
	ev.record(readKey(readMemberPart, path[:min(n, len(path))]...))
}

// setMemberInputs makes input.member of all members, with the parts that any binding reads.
func (e *Engine) setMemberInputs() {
	e.memberInputs, e.memberParts = map[string]value.Value{}, 0
	for _, b := range e.bindings {
		e.memberParts |= b.inputParts
	}
	for m := range e.fleet.Members() {
		e.memberInputs[m.Name] = fleetdoc.MemberInput(&m, e.memberParts)
	}
}

// invalidateMember marks the subjects that read what differs of a member. One that
// joined or left differs in everything.
func (r *pass) invalidateMember(d aggregate.MemberDelta) {
	before, after := d.Before, d.After
	changed, there := fleetdoc.AllParts, false
	switch {
	case before == nil:
		before = &aggregate.Member{Name: after.Name}
	case after == nil:
		after = &aggregate.Member{Name: before.Name}
	default:
		changed, there = fleetdoc.Changed(before, after), true
	}
	name := before.Name
	for _, b := range r.e.bindings {
		if !there || fleetdoc.Differ(before, after, changed, b.pkg.Reads.Members) {
			r.invalidate(b.membersKey())
			r.invalidate(b.memberKey(name))
		}
	}
	for field, part := range fleetdoc.Fields {
		if changed&part != 0 {
			r.invalidate(readKey(readMemberPart, name, field))
		}
	}
	if changed&fleetdoc.Annotations != 0 {
		for _, key := range fleetdoc.DifferingLabels(before.Cluster.Annotations, after.Cluster.Annotations) {
			r.invalidate(readKey(readMemberPart, name, "annotations", key))
		}
	}
	if changed&fleetdoc.Conditions != 0 {
		for key, fields := range fleetdoc.DifferingConditions(before.Cluster.Conditions, after.Cluster.Conditions) {
			r.invalidate(readKey(readMemberPart, name, "conditions", key))
			for _, field := range fields {
				r.invalidate(readKey(readMemberPart, name, "conditions", key, field))
			}
		}
	}
}

// memberBinding is a member and a binding that reads something of it.
type memberBinding struct {
	b      *boundBinding
	member string
}

// affects reports whether verdicts of a member's subjects may differ, as what the binding reads of the member does.
func (r *pass) affects(b *boundBinding, member string) bool {
	parts := r.changed[member]
	switch {
	case parts&fleetdoc.Labels != 0 && b.sel.ByMembers():
		return true
	case parts&b.inputParts == 0:
		return false
	}
	at := memberBinding{b, member}
	does, known := r.affected[at]
	if !known {
		before, was := r.was.Member(member)
		after, is := r.after.Member(member)
		does = !was || !is || fleetdoc.Differ(&before, &after, parts, b.pkg.Reads.Member)
		if r.affected == nil {
			r.affected = map[memberBinding]bool{}
		}
		r.affected[at] = does
	}
	return does
}
