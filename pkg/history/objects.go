package history

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

// taker takes transitions of objects, scopes and members from the commits of an index. It belongs to one goroutine.
type taker struct {
	fields *selections
	trace  func(memberUID string, kind aggregate.Kind, at aggregate.Revision) string // may be nil
	// recorded returns the state of a scope that an earlier process has followed, and not said that it ended; Unknown for none, nil: there was none.
	recorded func(member, uid string, kind aggregate.Kind) aggregate.State
	full     func() // is called when much was taken; nil: nobody waits for it

	known map[scopeKey]scopeSeen // scopes that were read whole at some time
	uids  map[string]string      // of members, by name
	since time.Time              // up to when all was recorded before; zero: not known
	walks [2]walker
	body  [2][]byte

	// Of a batch:
	now   time.Time
	last  time.Time // of the batch before
	taken int
	out   []Record
}

type scopeKey struct {
	member string
	kind   aggregate.Kind
}

// scopeSeen is what is known of a scope that was read whole.
type scopeSeen struct {
	since   time.Time // of the last that was seen of it: what happened after that may not have been seen; zero: not known
	partial bool      // objects may leave it, and come back
	emptied bool      // its objects were dropped, for want of room, and are there nevertheless
}

func newTaker(fields *selections) *taker {
	return &taker{fields: fields, known: map[scopeKey]scopeSeen{}, uids: map[string]string{}}
}

// begin notes the members and scopes of a state that was loaded: what changed after that is a transition. All that happened
// until since is recorded.
func (t *taker) begin(s *aggregate.Snapshot, since time.Time) {
	t.since = since
	for m := range s.Members() {
		t.uids[m.Name] = m.UID
		t.knows(s, m.Name, since)
	}
}

// knows notes the scopes of a member that were read.
func (t *taker) knows(s *aggregate.Snapshot, member string, since time.Time) {
	for info := range s.Scopes(member) {
		if wasRead(info.Status) {
			t.known[scopeKey{member, info.Kind}] = scopeSeen{since: since, partial: info.Status.State == aggregate.Partial}
		}
	}
}

// wasRead reports whether a scope with a status was read whole, once.
func wasRead(s aggregate.Status) bool {
	return s.State == aggregate.Synced || s.State == aggregate.Partial || s.State == aggregate.Stale || s.State == aggregate.NotServed
}

// add takes a record.
func (t *taker) add(r Record) {
	t.taken++
	if t.out = append(t.out, r); len(t.out) >= batchRecords && t.full != nil {
		t.full()
	}
}

// commit takes what a commit changed.
func (t *taker) commit(c *aggregate.Commit) {
	switch {
	case c.Member == "":
		return
	case c.Left:
		t.left(c.Member, t.uids[c.Member], c.To)
		return
	case c.Kind == "":
		if before, after := c.Members(); after != nil {
			t.member(before, after, c.To)
		}
		return
	}
	key, uid := scopeKey{c.Member, c.Kind}, t.uids[c.Member]
	was, state, changed := c.Status()
	seen, known := t.known[key]
	if _, _, there := c.Scope(); !there {
		t.scope(c, uid, was, Removed, "")
		delete(t.known, key)
		return
	}
	switch {
	case !c.Net():
		t.changes(c, uid, seen, was)
		for range c.Changes() {
			if known && !seen.emptied {
				seen.since = t.now
				t.known[key] = seen
			}
			break
		}
	case known && changed && state.State == aggregate.OverBudget:
		seen.emptied = true
		t.known[key] = seen
	case seen.emptied && state.State != aggregate.OverBudget && wasRead(state):
		t.gap(c.Member, uid, c.Kind, seen.since, "the objects were not held for want of room: what happened to them is not known")
	case known && !seen.emptied:
		t.changes(c, uid, seen, was)
	}
	if changed {
		t.state(c, uid, was, state)
	}
}

// changes takes the changes of objects of a scope.
func (t *taker) changes(c *aggregate.Commit, uid string, seen scopeSeen, was aggregate.Status) {
	if t.fields.of(c.Kind) == nil {
		return
	}
	if c.Lost() {
		t.gap(c.Member, uid, c.Kind, seen.since, "changes came faster than they could be recorded")
		return
	}
	before := t.taken
	for change := range c.Changes() {
		t.object(uid, c.Kind, change)
	}
	if c.Net() && t.taken > before && was.State != aggregate.NotServed {
		t.gap(c.Member, uid, c.Kind, seen.since, "a list found what had changed: what was in between is not known")
	}
}

// object takes a change of an object.
func (t *taker) object(memberUID string, kind aggregate.Kind, c aggregate.Change) {
	of := t.fields.of(kind)
	if of == nil {
		return
	}
	if !c.Before.IsZero() && !c.After.IsZero() && c.After.ResourceVersion() != "" && c.Before.ResourceVersion() == c.After.ResourceVersion() {
		return // the same one, read in another way
	}
	before, err := t.read(0, c.Before, of)
	if err == nil {
		var after []leaf
		if after, err = t.read(1, c.After, of); err == nil {
			t.versions(memberUID, c, before, after)
			return
		}
	}
	at := c.After
	if at.IsZero() {
		at = c.Before
	}
	t.add(Record{
		Time: t.now, Type: Gap, Transition: "Gap", Revision: c.Revision, Member: at.Member(), MemberUID: memberUID, Kind: kind, Namespace: at.Namespace(), Name: at.Name(),
		UID: at.UID(), ResourceVersion: at.ResourceVersion(), Resource: at.Resource(), Key: join("gap", memberUID, at.UID(), at.ResourceVersion()), Message: "the object cannot be decoded: " + err.Error(), To: new(t.now),
	})
}

func (t *taker) versions(memberUID string, c aggregate.Change, before, after []leaf) {
	changes, more := between(before, after)
	at, transition := c.After, Changed
	switch {
	case c.Before.IsZero():
		transition = Created
	case c.After.IsZero():
		at, transition = c.Before, Deleted
	case len(changes) == 0:
		return // of fields that are not recorded
	}
	r := Record{
		Time: t.now, Type: Object, Transition: transition, Revision: c.Revision, Member: at.Member(), MemberUID: memberUID, Kind: at.Ref().Kind, Namespace: at.Namespace(),
		Name: at.Name(), UID: at.UID(), ResourceVersion: at.ResourceVersion(), Resource: at.Resource(), Changes: changes, More: more,
	}
	r.MemberTime = t.happened(transition, changes)
	if t.trace != nil {
		r.Trace = t.trace(memberUID, r.Kind, c.Revision)
	}
	if r.Key = r.key(); transition == Deleted && t.known[scopeKey{r.Member, r.Kind}].partial { // it may only have left the selection
		r.Key = join(r.MemberUID, r.UID, r.ResourceVersion, "deleted")
	}
	t.add(r)
}

// read returns the recorded fields of an object, which live until the next call with the same place.
func (t *taker) read(place int, o aggregate.Object, of *selection) ([]leaf, error) {
	if o.IsZero() {
		return nil, nil
	}
	body, err := o.AppendBody(t.body[place][:0])
	if err != nil {
		return nil, err
	}
	t.body[place] = body
	return t.walks[place].fields(body, of), nil
}

// happened returns when a transition happened by what the object says: nil where it does not.
func (t *taker) happened(transition string, changes []Change) *time.Time {
	var newest time.Time
	note := func(text []byte) {
		if len(text) < 2 || text[0] != '"' {
			return
		}
		if at, err := time.Parse(time.RFC3339Nano, string(text[1:len(text)-1])); err == nil && at.After(newest) {
			newest = at
		}
	}
	switch body := t.body[1]; transition {
	case Created:
		note(canonjson.Get(body, "metadata", "creationTimestamp"))
	case Deleted:
		note(canonjson.Get(t.body[0], "metadata", "deletionTimestamp"))
	default:
		conditions := canonjson.NewReader(canonjson.Get(body, "status", "conditions"))
		if conditions.Peek() != '[' {
			return nil
		}
		for more := conditions.Open('['); more; more = conditions.Next(']') {
			item := conditions.Value()
			if conditionChanged(changes, identity(item)) {
				note(canonjson.Get(item, "lastTransitionTime"))
			}
		}
	}
	if newest.IsZero() {
		return nil
	}
	newest = newest.UTC()
	return &newest
}

// conditionChanged reports whether the status of a condition is among the changes.
func conditionChanged(changes []Change, name []byte) bool {
	const prefix, suffix = "status.conditions[", "].status"
	for i := range changes {
		p := changes[i].Path
		if len(p) == len(prefix)+len(name)+len(suffix) && p[:len(prefix)] == prefix && p[len(prefix):len(p)-len(suffix)] == string(name) && p[len(p)-len(suffix):] == suffix {
			return true
		}
	}
	return false
}

// state takes the new status of a scope.
func (t *taker) state(c *aggregate.Commit, uid string, was, state aggregate.Status) {
	key := scopeKey{c.Member, c.Kind}
	if state.State.Complete() || state.State == aggregate.Partial {
		if _, known := t.known[key]; !known && t.isLost(c, uid, state.State) {
			t.gap(c.Member, uid, c.Kind, t.since, "what was kept of the objects was lost: what changed until they were listed is not known")
		}
		t.known[key] = scopeSeen{since: t.now, partial: state.State == aggregate.Partial}
	}
	t.scope(c, uid, was, state.State.String(), state.Reason)
}

// isLost reports whether an earlier process has followed a scope of which nothing was kept. A kind that was not served and is not had nothing to lose.
func (t *taker) isLost(c *aggregate.Commit, uid string, now aggregate.State) bool {
	if t.recorded == nil || t.fields.of(c.Kind) == nil {
		return false
	}
	before := t.recorded(c.Member, uid, c.Kind)
	return before != aggregate.Unknown && (before != aggregate.NotServed || now != aggregate.NotServed)
}

func (t *taker) scope(c *aggregate.Commit, uid string, was aggregate.Status, transition, reason string) {
	r := Record{
		Time: t.now, Type: Scope, Transition: transition, Revision: c.To, Member: c.Member, MemberUID: uid, Kind: c.Kind, Message: reason,
		Key: join("scope", uid, string(c.Kind), number(c.To), transition),
	}
	if loaded := was.State == aggregate.Stale && was.Unread || was.State == aggregate.Unknown && was.Reason != ""; !loaded { // else it does not say how it was
		r.Was = was.State.String()
	}
	t.add(r)
}

// gap takes a gap of a scope, or of a member where kind is "".
func (t *taker) gap(member, uid string, kind aggregate.Kind, since time.Time, why string) {
	to := t.now
	r := Record{Time: t.now, Type: Gap, Transition: "Gap", Member: member, MemberUID: uid, Kind: kind, Message: why, To: &to}
	if !since.IsZero() {
		r.From = &since
	}
	r.Key = join("gap", uid, string(kind), to.UTC().Format(time.RFC3339Nano))
	t.add(r)
}

// left takes that a member has left, with all its objects.
func (t *taker) left(member, uid string, at aggregate.Revision) {
	for key := range t.known {
		if key.member == member {
			delete(t.known, key)
		}
	}
	delete(t.uids, member)
	t.add(Record{Time: t.now, Type: Member, Transition: Left, Revision: at, Member: member, MemberUID: uid, Key: join("member", uid, Left)})
}

// member takes what has changed of a member; was is nil for one that has joined.
func (t *taker) member(was, is *aggregate.Member, at aggregate.Revision) {
	t.uids[is.Name] = is.UID
	r := Record{Time: t.now, Type: Member, Transition: Changed, Revision: at, Member: is.Name, MemberUID: is.UID, Key: join("member", is.UID, number(at))}
	if was == nil {
		r.Transition, r.Key, was = Joined, join("member", is.UID, Joined), &aggregate.Member{}
	}
	if r.Changes, r.More = memberChanges(was, is); len(r.Changes) > 0 || r.Transition == Joined {
		t.add(r)
	}
}

// memberChanges returns how what is recorded of a member differs, and how many changes are too much.
func memberChanges(was, is *aggregate.Member) (changes []Change, more int) {
	add := func(path, before, after string) {
		if before != after {
			changes = append(changes, Change{Path: path, Before: text(before), After: text(after)})
		}
	}
	add("version", was.Version, is.Version)
	add("topology.class", was.Cluster.Class, is.Cluster.Class)
	add("topology.version", was.Cluster.Version, is.Cluster.Version)
	if was.Cluster.Paused != is.Cluster.Paused {
		add("paused", strconv.FormatBool(was.Cluster.Paused), strconv.FormatBool(is.Cluster.Paused))
	}
	labels := func(of []aggregate.Label) map[string]string {
		out := make(map[string]string, len(of))
		for _, l := range of {
			out[l.Key] = l.Value
		}
		return out
	}
	differ(labels(was.Labels), labels(is.Labels), func(key, before, after string) { add("labels["+key+"]", before, after) })
	conditions := func(of []aggregate.Condition) map[string]string {
		out := make(map[string]string, len(of))
		for _, c := range of {
			out[c.Type] = c.Status
		}
		return out
	}
	differ(conditions(was.Cluster.Conditions), conditions(is.Cluster.Conditions), func(key, before, after string) { add("conditions["+key+"].status", before, after) })
	if len(changes) > maxChanges {
		changes, more = changes[:maxChanges], len(changes)-maxChanges
	}
	return changes, more
}

// differ calls yield with the keys of two maps whose values differ, in order; "" is of one that is not there.
func differ(before, after map[string]string, yield func(key, before, after string)) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if before[key] != after[key] {
			yield(key, before[key], after[key])
		}
	}
}

// text returns a string as JSON, nil for "".
func text(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	out, err := json.Marshal(s)
	if err != nil {
		return nil // strings can be encoded
	}
	return out
}

func number(r aggregate.Revision) string { return strconv.FormatUint(uint64(r), 10) }

// compare takes what differs between two states of which it is not known any more what was between.
func (t *taker) compare(before, after *aggregate.Snapshot) {
	for m := range before.Members() {
		if now, is := after.Member(m.Name); !is || now.UID != m.UID {
			t.left(m.Name, m.UID, after.Revision())
		}
	}
	for m := range after.Members() {
		if after.SameMember(m.Name, before) {
			continue
		}
		was, there := before.Member(m.Name)
		if !there || was.UID != m.UID {
			t.member(nil, &m, after.Revision())
			t.knows(after, m.Name, t.now)
			continue
		}
		t.member(&was, &m, after.Revision())
		t.compareMember(&m, before, after)
	}
}

func (t *taker) compareMember(m *aggregate.Member, before, after *aggregate.Snapshot) {
	t.gap(m.Name, m.UID, "", t.last, "changes came faster than they could be recorded: what was in between is not known")
	for info := range after.Scopes(m.Name) {
		seen, known := t.known[scopeKey{m.Name, info.Kind}]
		if known && !seen.emptied && info.Status.State != aggregate.OverBudget && t.fields.of(info.Kind) != nil {
			t.compareScope(m, info.Kind, before, after)
		}
	}
	for key := range t.known {
		if _, is := after.Scope(m.Name, key.kind); !is && key.member == m.Name {
			delete(t.known, key)
		}
	}
	t.knows(after, m.Name, t.now)
}

// compareScope takes what differs between the objects of a scope, which come by namespace and name.
func (t *taker) compareScope(m *aggregate.Member, kind aggregate.Kind, before, after *aggregate.Snapshot) {
	next, stop := iter.Pull(before.Objects(m.Name, kind))
	defer stop()
	was, more := next()
	for now := range after.Objects(m.Name, kind) {
		for ; more && earlier(was, now); was, more = next() {
			t.object(m.UID, kind, aggregate.Change{Revision: after.Revision(), Before: was})
		}
		if !more || earlier(now, was) {
			t.object(m.UID, kind, aggregate.Change{Revision: now.Revision(), After: now})
			continue
		}
		switch {
		case was.UID() != now.UID():
			t.object(m.UID, kind, aggregate.Change{Revision: after.Revision(), Before: was})
			t.object(m.UID, kind, aggregate.Change{Revision: now.Revision(), After: now})
		case was.Revision() != now.Revision():
			t.object(m.UID, kind, aggregate.Change{Revision: now.Revision(), Before: was, After: now})
		}
		was, more = next()
	}
	for ; more; was, more = next() {
		t.object(m.UID, kind, aggregate.Change{Revision: after.Revision(), Before: was})
	}
}

// earlier reports whether an object comes before another one of its scope.
func earlier(a, b aggregate.Object) bool {
	return cmp.Or(strings.Compare(a.Namespace(), b.Namespace()), strings.Compare(a.Name(), b.Name())) < 0
}
