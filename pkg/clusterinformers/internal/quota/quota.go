// Package quota accounts what members cost against their budgets, and bounds the first
// lists that run at the same time.
package quota

import "sync"

// Limits are what one member may cost.
type Limits struct{ Objects, Bytes int64 }

// Member is what one member costs, against its budget.
type Member struct {
	Limits Limits
	Fleet  *Fleet

	mu             sync.Mutex
	objects, bytes int64
	scopes         int64
}

// Usage is what one scope is charged. Its Member's mu guards it.
type Usage struct {
	objects, bytes int64
	removed        bool // what is given back from now on was given back with the scope
}

// freeScopes of a member are not charged for their informers: all kinds of Kubernetes, and
// some more.
const freeScopes = 200

// AddScope adds a scope: budgets are shared equally while they are short. free reports
// whether its informer is not charged.
func (a *Member) AddScope() (free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scopes++; a.scopes == 1 {
		a.Fleet.addMembers(1)
	}
	return a.scopes <= freeScopes
}

// RemoveScope removes a scope with all that it is charged. It is charged nothing from then on:
// what reads its connection may not know yet.
func (a *Member) RemoveScope(s *Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.removed {
		return
	}
	a.Fleet.charge(a.bytes, -s.bytes)
	if a.scopes--; a.scopes == 0 {
		a.Fleet.addMembers(-1)
	}
	a.objects, a.bytes = a.objects-s.objects, a.bytes-s.bytes
	*s = Usage{removed: true}
}

// Charge adds to a scope's usage, or subtracts from it. It reports false, and
// charges nothing, when the budget has no more and the scope has its equal
// share: a small scope never pays for a huge one that is still being listed. So a
// member may cost up to twice its budget while its scopes compete.
func (a *Member) Charge(s *Usage, objects, bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.removed {
		return objects <= 0 && bytes <= 0
	}
	shares := max(a.scopes, 1)
	over := func(more, total, own, limit int64) bool {
		return more > 0 && total+more > limit && own+more > limit/shares
	}
	if over(objects, a.objects, s.objects, a.Limits.Objects) || over(bytes, a.bytes, s.bytes, a.Limits.Bytes) {
		return false
	}
	if !a.Fleet.charge(a.bytes, bytes) {
		return false
	}
	a.objects, a.bytes = a.objects+objects, a.bytes+bytes
	s.objects, s.bytes = s.objects+objects, s.bytes+bytes
	return true
}

// Used returns what the member is charged.
func (a *Member) Used() (objects, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects, a.bytes
}

// Fleet is what all members cost together, against Budget.FleetBytes. Its lock
// comes after a Member's. A nil Fleet has no limit.
type Fleet struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	members int64 // that have scopes
}

// NewFleet returns a fleet with a limit in bytes; nil, which has none, for 0.
func NewFleet(limit int64) *Fleet {
	if limit == 0 {
		return nil
	}
	return &Fleet{limit: limit}
}

// addMembers adds to the number of members that have scopes.
func (f *Fleet) addMembers(n int64) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members += n
}

// charge adds to what a member costs, or subtracts from it. It reports false, and charges
// nothing, when there is no more and the member has its equal share: a small one never
// pays for a huge one.
func (f *Fleet) charge(own, more int64) bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if more > 0 && f.bytes+more > f.limit && own+more > f.limit/max(f.members, 1) {
		return false
	}
	f.bytes += more
	return true
}
