package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of a box.
const (
	maxBytes = 768 << 10 // of its JSON, so that it fits into a ConfigMap
	// maxBulkBytes is how large events of which there may be very many let it grow, so that
	// the others have room.
	maxBulkBytes = maxBytes / 2
	maxAge       = 7 * 24 * time.Hour // of an event that its receiver refuses
	// oldAge is how old facts may be to be told to a receiver that was told nothing yet, unless
	// they go on.
	oldAge = time.Hour
	// keepTold is how long a fact that is no longer listed is known to have been told: a
	// source that starts lists less than it will.
	keepTold = 24 * time.Hour
)

// box is what is to be sent to one receiver, and what has been told. It is the content of a
// ConfigMap. It reads no clock.
type box struct {
	Since   time.Time       `json:"since"`             // when the receiver was first known
	Pending []pending       `json:"pending,omitempty"` // in the order of their times
	Open    map[string]open `json:"open,omitempty"`    // told, and may end; by id
	// Told is all else that was told: by the digest of its id, the hour since 1970 in which it
	// was listed last. The box would be written with every look otherwise.
	Told map[string]int64 `json:"told,omitempty"`
}

// pending is an event that its receiver has not taken.
type pending struct {
	Event Event     `json:"event"`
	Since time.Time `json:"since"`
}

// open is a fact that ends: what its second event has.
type open struct {
	Until   string            `json:"until"`
	Subject string            `json:"subject,omitempty"`
	Data    map[string]string `json:"data,omitempty"`
}

// collected says what collect has done.
type collected struct {
	changed  bool
	dropped  int // events that were too old to keep
	overflow int // facts that have no room yet
}

// collect adds events for facts that have not been told, and for those that have ended.
func (b *box) collect(origin string, facts []Fact, complete bool, now time.Time) collected {
	var out collected
	if b.Since.IsZero() {
		b.Since, out.changed = now.UTC(), true
	}
	n := len(b.Pending)
	b.Pending = slices.DeleteFunc(b.Pending, func(p pending) bool { return now.Sub(p.Since) > maxAge })
	out.dropped = n - len(b.Pending)
	out.changed = out.changed || out.dropped > 0
	slices.SortStableFunc(facts, func(a, c Fact) int { return cmp.Or(a.At.Compare(c.At), strings.Compare(a.id(), c.id())) })
	listed := map[string]bool{} // digests
	size := -1
	for i := range facts {
		f := &facts[i]
		e := newEvent(origin, f)
		key := digest(e.ID)
		listed[key] = true
		if known, seen := b.isTold(e.ID, key, now); known {
			out.changed = out.changed || seen
			continue
		}
		if size < 0 {
			size = b.size()
		}
		limit := maxBytes
		if f.Type == RolledBack {
			limit = maxBulkBytes
		}
		add := 2*len(e.body()) + overheadBytes
		if size+add > limit {
			out.overflow++
			continue
		}
		size += add
		out.changed = true
		b.tell(f, &e, key, now)
	}
	if complete {
		out.changed = b.end(origin, listed, now) || out.changed
	}
	return out
}

// isTold reports whether a fact has been told, and notes that it is listed still.
func (b *box) isTold(id, key string, now time.Time) (told, changed bool) {
	if _, isOpen := b.Open[id]; isOpen {
		return true, false
	}
	last, told := b.Told[key]
	if told && last != hour(now) {
		b.Told[key] = hour(now)
		return true, true
	}
	return told, false
}

// overheadBytes is about what the JSON of a pending event takes besides the event.
const overheadBytes = 128

func (b *box) size() int {
	text, err := json.Marshal(b)
	if err != nil {
		panic("notify: a box of strings cannot be encoded: " + err.Error())
	}
	return len(text)
}

// tell adds the event of a fact, unless the fact is of the past.
func (b *box) tell(f *Fact, e *Event, key string, now time.Time) {
	past := f.Until == "" && !f.Ongoing && f.At.Before(b.Since.Add(-oldAge))
	if f.Until != "" {
		if b.Open == nil {
			b.Open = map[string]open{}
		}
		b.Open[e.ID] = open{Until: f.Until, Subject: e.Subject, Data: e.Data}
	} else {
		b.setTold(key, now)
	}
	if !past {
		b.Pending = append(b.Pending, pending{*e, now.UTC()})
	}
}

func (b *box) setTold(key string, now time.Time) {
	if b.Told == nil {
		b.Told = map[string]int64{}
	}
	b.Told[key] = hour(now)
}

// end makes the events of facts that are no longer listed, and forgets what is long gone.
func (b *box) end(origin string, listed map[string]bool, now time.Time) (changed bool) {
	for _, id := range sortedKeys(b.Open) {
		key := digest(id)
		if listed[key] {
			continue
		}
		o := b.Open[id]
		e := Event{SpecVersion: "1.0", ID: endedID(id), Source: origin, Type: o.Until, Subject: o.Subject, Time: now.UTC(), Data: o.Data}
		if e.Data != nil {
			e.DataContentType = "application/json"
		}
		b.Pending = append(b.Pending, pending{e, now.UTC()})
		delete(b.Open, id)
		b.setTold(key, now)
		changed = true
	}
	for key, last := range b.Told {
		if !listed[key] && hour(now)-last > int64(keepTold/time.Hour) {
			delete(b.Told, key)
			changed = true
		}
	}
	return changed
}

func hour(t time.Time) int64 { return t.Unix() / int64(time.Hour/time.Second) }

// digest is short, and distinct among all ids that a box can have.
func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// endedID is the id of the event that a fact has ended.
func endedID(id string) string { return id + "/ended" }

// sent removes an event.
func (b *box) sent(id string) {
	b.Pending = slices.DeleteFunc(b.Pending, func(p pending) bool { return p.Event.ID == id })
}

func (b *box) clone() *box {
	return &box{Since: b.Since, Pending: slices.Clone(b.Pending), Open: maps.Clone(b.Open), Told: maps.Clone(b.Told)}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
