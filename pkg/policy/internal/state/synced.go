package state

import (
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// BindingSynced reports whether no scope that a binding evaluates or reads is waited for. Until
// then not all of its verdicts have been counted; those of members that are given up are not. A version that is in
// effect nowhere is not waited for. What others are asked for, and have not told yet, is.
func (s *State) BindingSynced(binding string) bool {
	b := s.parts.Binding(binding)
	if b == nil {
		return false
	}
	for of := range b.inEffect() {
		if s.anyGap(of, s.parts.Gaps.Awaited) || s.waits(of) || s.parts.External.Pending(of.Pkg.Reads.External) {
			return false
		}
	}
	return true
}

// Awaited returns the members, by name, that are judged here and of which something that policies read is still to be read, or what
// their verdicts read of others to be told. Unlike Synced it is of now: a process that takes over a member has none of its verdicts
// at first, and then those that follow from what it knows.
func (s *State) Awaited() []string {
	taken := s.parts.Takeovers
	if s.awaitsKeys() {
		taken = taken[1:]
	}
	members := slices.AppendSeq(slices.Clone(taken), s.parts.Gaps.AwaitedOf(s.parts.Fleet.Judges, s.parts.Unawaited()))
	slices.Sort(members)
	return slices.Compact(members)
}

// SyncedNow is Synced as of now: no scope that policies read is waited for, wherever it is read, and no member is Awaited, nor what
// verdicts on keys read. Where several processes share a fleet, verdicts are Unknown until then, without the violations that another
// process may have found.
func (s *State) SyncedNow() bool {
	return s.Synced && len(s.parts.Takeovers) == 0 && !s.parts.Gaps.Waits(s.parts.Unawaited())
}

// Unread returns the members of which a binding evaluates or reads a scope that this process has not
// read, nil for none: what they have is not known, or of before a restart.
func (s *State) Unread(binding string) map[string]bool {
	b := s.parts.Binding(binding)
	if b == nil {
		return nil
	}
	var out map[string]bool
	for of := range b.inEffect() {
		s.anyGap(of, func(g verdict.Gap) bool {
			if g.Unread() {
				if out == nil {
					out = map[string]bool{}
				}
				out[g.Member] = true
			}
			return false
		})
	}
	return out
}

// anyGap reports whether is does for any gap of what a binding evaluates or reads.
func (s *State) anyGap(b *Binding, is func(verdict.Gap) bool) bool {
	kinds, elsewhere := s.parts.kindsOf(b), s.parts.kindsElsewhere(b)
	for _, kind := range kinds.Among(slices.Values(s.parts.Gaps.Kinds)) {
		for _, g := range s.parts.Gaps.Of(kind) {
			of := s.parts.Fleet.Judges(g.Member) || elsewhere.Has(kind)
			if of && (b.Selected.Has(g.Member) || b.Visible.Has(g.Member)) && is(g) {
				return true
			}
		}
	}
	return false
}

// kindsOf are the kinds that a binding evaluates or reads.
func (s *Parts) kindsOf(b *Binding) module.KindSet {
	kinds := s.kindsRead(b.Pkg)
	kinds.Add(b.Pkg.Evaluates())
	kinds.AddKinds(b.Selection.ReadKinds())
	return kinds
}

// kindsElsewhere are the kinds that a binding reads in members that this process does not judge.
func (s *Parts) kindsElsewhere(b *Binding) module.KindSet {
	if b.Pkg.IsTemplate() && !b.FleetInventory() {
		return module.KindSet{}
	}
	return s.kindsRead(b.Pkg)
}

// Unawaited returns the kinds that only versions read which are to be in effect in no member: nobody waits for their
// scopes. A member that a version is to be in effect in may not have joined yet.
func (s *Parts) Unawaited() map[aggregate.Kind]bool {
	shadow, awaited := map[aggregate.Kind]bool{}, map[aggregate.Kind]bool{}
	for _, b := range s.Bindings {
		for v := range b.Versions() {
			into := awaited
			if next := b.Binding.Next; next != nil && (v == b && next.Whole || v == b.Next && !next.Whole && len(next.Members) == 0) {
				into = shadow
			}
			kinds := s.kindsOf(v)
			for _, kind := range kinds.Among(slices.Values(s.Gaps.Kinds)) {
				into[kind] = true
			}
		}
	}
	for _, v := range s.Views {
		into := awaited
		if v.Pkg.VersionOf() != "" { // those of versions in effect are among what these read
			into = shadow
		}
		for _, kind := range v.Pkg.Evaluates().Among(slices.Values(s.Gaps.Kinds)) {
			into[kind] = true
		}
	}
	maps.DeleteFunc(shadow, func(kind aggregate.Kind, _ bool) bool { return awaited[kind] })
	return shadow
}
