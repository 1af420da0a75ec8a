package clusterinformers

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
)

// MemberStatus is what the manager knows of one member.
type MemberStatus struct {
	Name     string            `json:"name"`
	UID      string            `json:"uid,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`  // of its Cluster
	Version  string            `json:"version,omitempty"` // of its API server
	State    connection.State  `json:"state"`
	Reason   connection.Reason `json:"reason,omitempty"`  // why it is not Connected, or not written to
	Message  string            `json:"message,omitempty"` // the same for people, truncated
	Since    time.Time         `json:"since"`             // of the state
	ReadOnly bool              `json:"readOnly,omitempty"`
	Paused   bool              `json:"paused,omitempty"` // it is read, and not written to
	// Held is why nothing is written to it although it is read, with who said so as far as
	// that is known; FrozenUntil is when a freeze ends by itself.
	Held string `json:"held,omitempty"`
	// WritesWith names the credentials that it is written with: a Secret of the hub.
	WritesWith  string     `json:"writesWith,omitempty"`
	FrozenUntil *time.Time `json:"frozenUntil,omitempty"`
	// Transport is why the member is reached by net/http, which costs more a watch; empty
	// where it is not, or where Options.StockTransport asks for it.
	Transport string `json:"transport,omitempty"`
	Synced    bool   `json:"synced"` // every scope has synced, or failed for good, at least once

	Objects int                     `json:"objects"`
	Bytes   int64                   `json:"bytes"`
	Scopes  map[aggregate.State]int `json:"scopes"`
	Budget  BudgetStatus            `json:"budget"`
	// Freshness is the age of the oldest of the last contact of its scopes, nil while
	// there was none. Anything that comes over the connection of a member that is watched is
	// a contact, be it the answer to a ping: a quiet member is fresh.
	Freshness *time.Duration `json:"freshness,omitempty"`
	// Error is the newest error that is not over, LastError the newest of all.
	Error       string     `json:"error,omitempty"`
	ErrorAt     *time.Time `json:"errorTime,omitempty"`
	LastError   string     `json:"lastError,omitempty"`
	LastErrorAt *time.Time `json:"lastErrorTime,omitempty"`

	Audit   *AuditStatus  `json:"audit,omitempty"` // nil before anything is kept up to date
	Details []ScopeStatus `json:"details,omitempty"`
}

// BudgetStatus is what is held of a member, as it is charged, against its Budget.
type BudgetStatus struct {
	Objects    int64 `json:"objects"`
	MaxObjects int64 `json:"maxObjects"`
	Bytes      int64 `json:"bytes"`
	MaxBytes   int64 `json:"maxBytes"`
}

// AuditStatus is how well it is known that what is held of a member is what the member has.
type AuditStatus struct {
	// Oldest is the longest time since a scope was last proved, by a list or an audit, and
	// OldestFirstTier that of the kinds that are audited most often: where the budget does not suffice,
	// the intervals that are reached.
	Oldest          time.Duration `json:"oldest"`
	OldestFirstTier time.Duration `json:"oldestFirstTier"`
	// Behind says that one of them exceeds the interval that is configured.
	Behind bool `json:"behind,omitempty"`
	// Unaudited is the number of scopes that an earlier process has held and that were not proved
	// since. Nothing is written to the member before they are.
	Unaudited int `json:"unaudited,omitempty"`
	// Lost is how many objects audits have found to differ since federator started, Last what the
	// last of these audits has found.
	Lost uint64 `json:"lostEvents,omitempty"`
	Last *Loss  `json:"lastLoss,omitempty"`
}

// Loss is what an audit has found to differ, and is having listed again.
type Loss struct {
	Time   time.Time `json:"time"`
	Member string    `json:"member"`
	// Object is what describes the member on the hub; nil: nothing does.
	Object      *corev1.ObjectReference `json:"-"`
	Kind        aggregate.Kind          `json:"kind"`
	Namespace   string                  `json:"namespace,omitempty"` // "" where the kind was audited in all of them
	Differences map[string]int          `json:"differences"`         // objects by cause: missing, extra, version, uid, content
	Example     string                  `json:"example"`             // cause, namespace and name of one
}

// AuditResult is what an audit of a kind of a member has found.
type AuditResult struct {
	Member    string         `json:"member"`
	Kind      aggregate.Kind `json:"kind"`
	Namespace string         `json:"namespace,omitempty"` // "": all
	// Outcome is equal, different, unconfirmed (a second list did not say the same), expired (the
	// member has forgotten the resourceVersion), failed, listed (it could not be audited and was listed
	// instead) or notSynced.
	Outcome         string         `json:"outcome"`
	Message         string         `json:"message,omitempty"`
	ResourceVersion string         `json:"resourceVersion,omitempty"` // at which it was compared
	Objects         int            `json:"objects"`                   // of the member
	Bodies          int            `json:"contentCompared"`           // of how many the content was compared
	Differences     map[string]int `json:"differences,omitempty"`     // as of a Loss
	Examples        []string       `json:"examples,omitempty"`        // cause, namespace and name
	Repaired        bool           `json:"repaired,omitempty"`        // it was listed again
	Requests        int            `json:"requests"`
	Bytes           int64          `json:"bytes"`
	Took            time.Duration  `json:"took"`
}

// ScopeStatus is what the manager knows of one scope.
type ScopeStatus struct {
	Kind           aggregate.Kind  `json:"kind"`
	Version        string          `json:"version,omitempty"`
	State          aggregate.State `json:"state"`
	Reason         string          `json:"reason,omitempty"`
	Objects        int             `json:"objects"`
	Bytes          int64           `json:"bytes"`
	LeftOut        int             `json:"leftOut,omitempty"`        // objects that no API server would admit
	LeftOutMore    bool            `json:"leftOutMore,omitempty"`    // there may be more: the member has no budget to count them
	LeftOutExample string          `json:"leftOutExample,omitempty"` // namespace and name of one
	Applied        string          `json:"appliedResourceVersion,omitempty"`
	LastContact    *time.Time      `json:"heard,omitempty"` // when the member last sent anything
	// Proved is when what is held was last known to be what the member has: it was listed then, or an
	// audit has found nothing that differs. nil: never.
	Proved *time.Time `json:"proved,omitempty"`
	// Unaudited says that an earlier process has held it, and that it was not proved since.
	Unaudited bool `json:"unaudited,omitempty"`

	Relists   map[string]int `json:"relists,omitempty"`
	Restarts  int            `json:"watchRestarts,omitempty"`
	Encoding  string         `json:"encoding,omitempty"` // json or protobuf
	Fallbacks uint64         `json:"decodeFallbacks,omitempty"`
}

// freshAsOf returns the time as of which the scope is current. contact is the member's last
// contact, which also counts for a watched scope without changes.
func (d ScopeStatus) freshAsOf(contact time.Time) *time.Time {
	if d.LastContact != nil && contact.After(*d.LastContact) && (d.State == aggregate.Synced || d.State == aggregate.Partial) {
		return &contact
	}
	return d.LastContact
}

// addScopes adds what the scopes say.
func (st *MemberStatus) addScopes(informers []*runningInformer, absent map[aggregate.Kind]aggregate.Status, contact time.Time, details bool) {
	var oldest time.Time
	for _, r := range informers {
		d := r.scopeStatus()
		st.Objects += d.Objects
		st.Bytes += d.Bytes
		st.Scopes[d.State]++
		d.LastContact = d.freshAsOf(contact)
		if d.LastContact != nil && (oldest.IsZero() || d.LastContact.Before(oldest)) {
			oldest = *d.LastContact
		}
		if details {
			st.Details = append(st.Details, d)
		}
	}
	for kind, status := range absent {
		st.Scopes[status.State]++
		if details {
			st.Details = append(st.Details, ScopeStatus{Kind: kind, State: status.State, Reason: status.Reason})
		}
	}
	if !oldest.IsZero() {
		age := time.Since(oldest)
		st.Freshness = &age
	}
	slices.SortFunc(st.Details, func(a, b ScopeStatus) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
}

// addLoaded adds the scopes of an earlier process that this one has not gone on with yet.
func (st *MemberStatus) addLoaded(s *aggregate.Snapshot, absent map[aggregate.Kind]aggregate.Status, details bool) {
	for info := range s.Scopes(st.Name) {
		if _, told := absent[info.Kind]; told {
			continue
		}
		st.Objects += info.Objects
		st.Bytes += info.Bytes
		st.Scopes[info.Status.State]++
		if details {
			st.Details = append(st.Details, ScopeStatus{
				Kind: info.Kind, Version: info.Version, State: info.Status.State, Reason: info.Status.Reason, Objects: info.Objects, Bytes: info.Bytes,
			})
		}
	}
	slices.SortFunc(st.Details, func(a, b ScopeStatus) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
}

// addAudit adds how well it is known that what is held is what the member has.
func (st *MemberStatus) addAudit(a *auditor, informers []*runningInformer) {
	now, plan, unaudited := time.Now(), a.member.auditPlan(), a.member.unaudited()
	s := AuditStatus{Unaudited: len(unaudited)}
	for n := range st.Details {
		st.Details[n].Unaudited = slices.Contains(unaudited, st.Details[n].Kind)
	}
	for _, r := range informers {
		proved := r.provedAt()
		if proved == nil {
			continue
		}
		st.Audit = &s
		age := now.Sub(*proved)
		if s.Oldest = max(s.Oldest, age); a.isFirstTier(r.kind) {
			s.OldestFirstTier = max(s.OldestFirstTier, age)
		}
	}
	s.Behind = !a.member.manager.opts.Audit.Off && (s.Oldest > plan.Interval || s.OldestFirstTier > plan.FirstTier)
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Lost = a.lost; s.Lost > 0 {
		newest := a.newest
		s.Last = &newest
	}
	if s.Unaudited > 0 || s.Lost > 0 {
		st.Audit = &s
	}
}

// Member returns what is known of a member, its scopes aside; ok is false for one that is not.
func (m *Manager) Member(name string) (st MemberStatus, ok bool) {
	mb, err := m.lookup(name)
	if err != nil {
		return MemberStatus{}, false
	}
	st = mb.connStatus()
	mb.addScopes(&st, false)
	return st, true
}

// Proved returns when what is held of a kind of a member was last known to be what the member has; the
// zero time where it never was.
func (m *Manager) Proved(member string, kind aggregate.Kind) time.Time {
	mb, err := m.lookup(member)
	if err != nil {
		return time.Time{}
	}
	mb.mu.Lock()
	r, ended := mb.informers[kind], mb.proved[kind]
	mb.mu.Unlock()
	if r == nil {
		return ended
	}
	if at := r.provedAt(); at != nil {
		return *at
	}
	return time.Time{}
}

// Resources returns what members serve, kept or not, by kind and version, and a
// channel that is closed when it may have changed. The slice is shared and must
// not be changed.
func (m *Manager) Resources() ([]Resource, <-chan struct{}) {
	return m.catalog.Resources()
}

// Kinds returns the kinds that members serve, kept or not, and a channel that is
// closed when one is new or gone: not when it is only served otherwise, or called by
// another name. The map is shared and must not be changed.
func (m *Manager) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	return m.catalog.Kinds()
}

// LastContact returns the time as of which a kind of a member is current; a connected member
// without watch events counts as current. It is zero if the member has not answered, or the
// kind is not watched.
func (m *Manager) LastContact(member string, kind aggregate.Kind) time.Time {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return time.Time{}
	}
	mb.mu.Lock()
	r := mb.informers[kind]
	mb.mu.Unlock()
	if r == nil {
		return time.Time{}
	}
	if heard := r.scopeStatus().freshAsOf(mb.lastContact()); heard != nil {
		return *heard
	}
	return time.Time{}
}

// Applied returns the resourceVersion up to which the index has what a member serves of a
// kind, "" if that is not one.
func (m *Manager) Applied(member string, kind aggregate.Kind) string {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return ""
	}
	mb.mu.Lock()
	r := mb.informers[kind]
	mb.mu.Unlock()
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.listWatches) != 1 {
		return "" // of several namespaces, each at its own
	}
	return r.committed
}

// Dropped returns the fields of a kind that are not kept.
func (m *Manager) Dropped(kind aggregate.Kind) []string {
	rule, _ := m.rule(kind)
	return rule.Drop
}

// Resource is a kind at one version under one resource, as the members serve it together.
type Resource = catalog.Resource

// MemberQuery selects members. The zero value selects all of them.
type MemberQuery struct {
	Name     string             // <namespace>/<name>, or <name> in any namespace; "": any
	Selector labels.Selector    // of the labels of Clusters; nil: all
	States   []connection.State // none: all
	NotReady bool               // only members that are not Ready

	After   string // only members after this name, in order
	Limit   int    // of members; 0: none
	Details bool   // describe their scopes
}

// Ready reports whether the member is connected and has everything that it is to have. What
// configuration leaves out is not missing.
func (st *MemberStatus) Ready() bool {
	for state, n := range st.Scopes {
		if n > 0 && !state.Complete() && state != aggregate.Partial {
			return false
		}
	}
	return st.State == connection.Connected && st.Synced
}

// matches reports whether the query selects a member, apart from its scopes.
func (q *MemberQuery) matches(st *MemberStatus) bool {
	switch {
	case q.Name != "" && st.Name != q.Name && !strings.HasSuffix(st.Name, "/"+q.Name),
		q.Selector != nil && !q.Selector.Matches(labels.Set(st.Labels)),
		len(q.States) > 0 && !slices.Contains(q.States, st.State):
		return false
	}
	return true
}

// Select returns what is known of the members that a query selects, by name, and whether it
// selects more than its limit. Only what it returns costs more than a few words.
func (m *Manager) Select(q MemberQuery) (selected []MemberStatus, more bool) {
	for _, mb := range m.sortedMembers() {
		if mb.name <= q.After {
			continue
		}
		st := mb.connStatus()
		if !q.matches(&st) {
			continue
		}
		if !q.NotReady && q.Limit > 0 && len(selected) == q.Limit {
			return selected, true
		}
		mb.addScopes(&st, q.Details)
		switch {
		case q.NotReady && st.Ready():
		case q.Limit > 0 && len(selected) == q.Limit:
			return selected, true
		default:
			selected = append(selected, st)
		}
	}
	return selected, false
}

// Describes returns what describes a member on the hub; nil where nothing does, or there is no
// such member.
func (m *Manager) Describes(member string) *corev1.ObjectReference {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return nil
	}
	return mb.currentSpec().Object
}
