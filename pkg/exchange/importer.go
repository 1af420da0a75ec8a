package exchange

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// Peer is another process of the fleet.
type Peer struct {
	ID  string
	URL string // such as https://10.0.0.7:9444, below which its Exporter serves
	// Client verifies the peer, and is verified by it. It must speak HTTP/2.
	Client *http.Client
}

// FleetMember is a member that another process judges.
type FleetMember struct {
	Name, UID string
	Labels    []aggregate.Label // as its source describes it, which counts until its judge has told
	Judge     string            // the ID of the peer that judges it; "": not known
}

// ImporterOptions are those of an Importer.
type ImporterOptions struct {
	// Index is the peers': nobody else writes to it.
	Index  *aggregate.Index
	Logger *slog.Logger

	MaxRecord  int           // bytes of a record; 4 MiB by default
	MaxRecords int           // of a member; 2,000,000 by default
	MaxMembers int           // of a peer; 20,000 by default
	MaxSection int64         // bytes of what one batch has of one member; 256 MiB by default
	MaxBytes   int64         // heap bytes of the index; 8 GiB by default
	Silence    time.Duration // after which a stream is broken; 5 s by default
	Grace      time.Duration // for which members are as they were when it broke; 2 s by default
	Backoff    time.Duration // the longest time between two attempts to connect; 5 s by default
	Audit      time.Duration // in which all members are audited once; 10 min by default
}

func (o *ImporterOptions) validate() error {
	if o.Index == nil || o.Logger == nil {
		return errors.New("importer: Index and Logger are required")
	}
	if o.MaxRecord < 0 || o.MaxRecords < 0 || o.MaxMembers < 0 || o.MaxSection < 0 || o.MaxBytes < 0 ||
		o.Silence < 0 || o.Grace < 0 || o.Backoff < 0 || o.Audit < 0 {
		return errors.New("importer: a bound is negative")
	}
	o.MaxRecord = cmp.Or(o.MaxRecord, defaultMaxRecord)
	o.MaxRecords = cmp.Or(o.MaxRecords, 2_000_000)
	o.MaxMembers = cmp.Or(o.MaxMembers, 20_000)
	o.MaxSection = cmp.Or(o.MaxSection, 256<<20)
	o.MaxBytes = cmp.Or(o.MaxBytes, 8<<30)
	o.Silence = cmp.Or(o.Silence, 5*time.Second)
	o.Grace = cmp.Or(o.Grace, 2*time.Second)
	o.Backoff = cmp.Or(o.Backoff, 5*time.Second)
	o.Audit = cmp.Or(o.Audit, 10*time.Minute)
	return nil
}

// Importer writes what peers tell into the peers' index. Its methods are safe for concurrent use.
type Importer struct {
	o       ImporterOptions
	metrics *importerMetrics
	wake    trigger.Trigger // of Run

	setting sync.Mutex // held by SetFleet

	// mu is taken after a member's, and never held while one is waited for.
	mu      sync.Mutex
	members map[string]*member
	wanted  map[string]Peer
	links   map[string]*link

	interest    asked // by SetInterest
	held        *interest.Set
	heldChanged chan struct{}
	common      struct{ a, b, both *interest.Set } // see bothLocked
}

// member is a member of the fleet that another process judges. Importer.mu guards judge, source, since, why, has, present, away and lacks.
type member struct {
	name, uid string
	judge     string    // by the map
	source    string    // the peer of which the content is, and whose changes are taken; "": none tells
	since     time.Time // when that ended; zero where there never was one
	why       string
	has       *interest.Set // keys of which all was told, but for what was asked for since
	present   bool          // something was told
	away      bool          // it is shown as Stale
	lacks     bool          // and as Unread: it need not have what is held

	// mu guards all below, and is held while the member is written.
	mu      sync.Mutex
	labels  []aggregate.Label
	removed bool
	told    *aggregate.Member // nil: nothing yet
	hash    uint64            // of what is known of it
	scopes  map[aggregate.Kind]*scope
	changed uint64 // the sequence of the last batch with something of it
	number  uint64 // of what had been asked for by then
	stale   string // why it is shown as Stale; "": it is not
	unread  bool   // and as Unread
}

// scope is a scope of the index.
type scope struct {
	writer  *aggregate.Scope
	told    wire.Scope
	info    uint64 // its hash
	sum     wire.Sum
	changed uint64 // the sequence of the last batch with something of it
	number  uint64 // of what had been asked for by then
}

// NewImporter returns an importer.
func NewImporter(o ImporterOptions) (*Importer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	im := &Importer{o: o, wake: trigger.New(), members: map[string]*member{}, links: map[string]*link{}, interest: asked{1, interest.Everything()}, held: interest.Everything(), heldChanged: make(chan struct{})}
	im.metrics = newImporterMetrics(im)
	return im, nil
}

// SetPeers says which other processes there are. One with another URL or Client is connected again, and goes on from where
// it was; members of one that is gone are Stale until another judge has told of them.
func (im *Importer) SetPeers(peers []Peer) {
	wanted := make(map[string]Peer, len(peers))
	for _, p := range peers {
		p.URL = strings.TrimSuffix(p.URL, "/")
		wanted[p.ID] = p
	}
	im.mu.Lock()
	im.wanted = wanted
	im.mu.Unlock()
	im.wake.Fire()
}

// SetFleet says which members the index has: all that sources describe, but those that this process reads and knows.
// When it returns the index has exactly these. Package documentation says in which order members are moved.
func (im *Importer) SetFleet(fleet []FleetMember) error {
	im.setting.Lock()
	defer im.setting.Unlock()
	wanted := make(map[string]FleetMember, len(fleet))
	for _, f := range fleet {
		f.Labels = slices.Clone(f.Labels)
		slices.SortFunc(f.Labels, func(a, b aggregate.Label) int { return cmp.Compare(a.Key, b.Key) })
		wanted[f.Name] = f
	}
	im.leave(wanted)
	joined, err := im.join(wanted)
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, m := range joined {
		im.members[m.name] = m
	}
	for name, f := range wanted {
		m := im.members[name]
		if m == nil {
			continue // it could not be put
		}
		m.judge = f.Judge
	}
	for _, l := range im.links {
		l.check = true
		l.recheckLocked()
	}
	im.growLocked() // who has left is not waited for
	im.wake.Fire()
	return err
}

// leave removes members that are not wanted.
func (im *Importer) leave(wanted map[string]FleetMember) {
	var left []*member
	im.mu.Lock()
	for name, m := range im.members {
		if f, ok := wanted[name]; !ok || f.UID != m.uid {
			left = append(left, m)
			delete(im.members, name)
		}
	}
	im.mu.Unlock()
	for _, m := range left {
		m.mu.Lock()
		m.removed = true
		im.o.Index.RemoveMember(m.name)
		m.mu.Unlock()
	}
}

// join puts members that are new, and what sources say of those that nobody has told of.
func (im *Importer) join(wanted map[string]FleetMember) (joined []*member, err error) {
	for name, f := range wanted {
		im.mu.Lock()
		m := im.members[name]
		im.mu.Unlock()
		if m == nil {
			m = &member{name: name, uid: f.UID, scopes: map[aggregate.Kind]*scope{}}
		}
		m.mu.Lock()
		m.labels = f.Labels
		e := m.put(im.o.Index)
		fresh := m.told == nil
		m.mu.Unlock()
		if e != nil {
			err = e
			continue
		}
		if fresh {
			joined = append(joined, m)
		}
	}
	return joined, err
}

// put writes what is known of a member. m.mu must be held.
func (m *member) put(index *aggregate.Index) error {
	now := aggregate.Member{Name: m.name, UID: m.uid, Labels: m.labels}
	if m.told != nil {
		now = *m.told
	}
	if m.stale != "" {
		now.Serves, now.Silent = nil, nil      // what it serves is known no longer
		now.GivenUp = now.GivenUp && !m.unread // what it lacks was not given up
	}
	return index.PutMember(now)
}

// shown is the status of a scope as the index has it.
func (m *member) shown(told aggregate.Status) aggregate.Status {
	if m.stale == "" {
		return told
	}
	told.Unread = told.Unread || m.unread
	if told.State.Complete() || told.State == aggregate.Partial {
		told.State, told.Reason = aggregate.Stale, m.stale
	}
	return told
}

// Complete reports whether all of a member was told by its judge, who still tells what changes. Only then may a process
// that has judged it itself let go of it.
func (im *Importer) Complete(name string) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	m := im.members[name]
	if m == nil || m.source == "" || m.source != m.judge {
		return false
	}
	l := im.links[m.source]
	return l != nil && l.lost.IsZero() && im.sureLocked(m).keys().Covers(im.held)
}

// PeerStatus is how it stands with a peer.
type PeerStatus struct {
	ID        string
	Connected bool      // it has told all, and goes on
	Since     time.Time // when that was lost
	Reason    string    // why; "" before it was connected first
	Lag       uint64    // sequences that are being told
	Bytes     int64     // received, compressed
	Records   int64     // received
	Frontier  Frontier
}

// Frontier is up to where a peer has told all.
type Frontier struct {
	Epoch, Sequence uint64
	Revision        aggregate.Revision // of the peer's own index
	Time            time.Time          // by the peer's clock
}

// Status returns how it stands with each peer, by ID.
func (im *Importer) Status() []PeerStatus {
	im.mu.Lock()
	defer im.mu.Unlock()
	out := make([]PeerStatus, 0, len(im.links))
	for id, l := range im.links {
		s := PeerStatus{ID: id, Connected: l.connected, Since: l.lost, Reason: l.reason, Bytes: l.bytes, Records: l.records, Frontier: l.frontier}
		if l.telling > l.position {
			s.Lag = l.telling - l.position
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
