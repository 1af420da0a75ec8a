package notify

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of a box.
const (
	maxBytes = 768 << 10          // of its JSON, so that it fits into a ConfigMap
	maxAge   = 7 * 24 * time.Hour // of an event that its receiver refuses
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
	Pending []Event         `json:"pending,omitempty"` // in the order of their times
	Told    map[string]told `json:"told,omitempty"`    // by id
}

// told is a fact whose event has been made.
type told struct {
	Listed time.Time `json:"listed"` // for the last time, to an hour
	// Of a fact that ends.
	Until   string            `json:"until,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Data    map[string]string `json:"data,omitempty"`
}

// listedStep is how exactly a box knows when a fact was listed last: it would be written
// with every look otherwise.
const listedStep = time.Hour

// collected says what collect has done.
type collected struct {
	changed  bool
	dropped  int // events that were too old to keep
	overflow int // facts that have no room yet
}

// collect adds events for facts that have not been told, and for those that have ended.
func (b *box) collect(origin string, facts []Fact, complete bool, now time.Time) collected {
	first := b.Told == nil
	if first {
		b.Told = map[string]told{}
	}
	n := len(b.Pending)
	b.Pending = slices.DeleteFunc(b.Pending, func(e Event) bool { return now.Sub(e.Time) > maxAge })
	out := collected{dropped: n - len(b.Pending), changed: n > len(b.Pending)}
	slices.SortStableFunc(facts, func(a, c Fact) int { return cmp.Or(a.At.Compare(c.At), strings.Compare(a.id(), c.id())) })
	listed := map[string]bool{}
	size := -1
	for i := range facts {
		f := &facts[i]
		e := newEvent(origin, f)
		listed[e.ID] = true
		if known, was := b.Told[e.ID]; was {
			if now.Sub(known.Listed) >= listedStep {
				known.Listed, out.changed = now.Truncate(listedStep), true
				b.Told[e.ID] = known
			}
			continue
		}
		if size < 0 {
			size = b.size()
		}
		if size += 2*len(e.body()) + toldBytes; size > maxBytes {
			out.overflow++
			continue
		}
		out.changed = true
		b.tell(f, &e, first && now.Sub(f.At) > oldAge, now)
	}
	if complete {
		out.changed = b.end(origin, listed, now) || out.changed
	}
	return out
}

// toldBytes is about what the JSON of a told takes, with its id.
const toldBytes = 256

func (b *box) size() int {
	text, err := json.Marshal(b)
	if err != nil {
		panic("notify: a box of strings cannot be encoded: " + err.Error())
	}
	return len(text)
}

// tell adds the event of a fact, unless the fact is of the past.
func (b *box) tell(f *Fact, e *Event, past bool, now time.Time) {
	t := told{Listed: now.Truncate(listedStep)}
	if f.Until != "" {
		t.Until, t.Subject, t.Data = f.Until, e.Subject, e.Data
	}
	if b.Told[e.ID] = t; f.Until != "" || !past {
		b.Pending = append(b.Pending, *e)
	}
}

// end makes the events of facts that are no longer listed, and forgets what is long gone.
func (b *box) end(origin string, listed map[string]bool, now time.Time) (changed bool) {
	for _, id := range sortedKeys(b.Told) {
		t := b.Told[id]
		switch {
		case listed[id]:
		case t.Until != "":
			e := Event{SpecVersion: "1.0", ID: endedID(id), Source: origin, Type: t.Until, Subject: t.Subject, Time: now.UTC(), Data: t.Data}
			if e.Data != nil {
				e.DataContentType = "application/json"
			}
			b.Pending = append(b.Pending, e)
			b.Told[id] = told{Listed: now.Truncate(listedStep)}
			changed = true
		case t.Until == "" && now.Sub(t.Listed) > keepTold:
			delete(b.Told, id)
			changed = true
		}
	}
	return changed
}

// endedID is the id of the event that a fact has ended.
func endedID(id string) string { return id + "/ended" }

// sent removes an event.
func (b *box) sent(id string) {
	b.Pending = slices.DeleteFunc(b.Pending, func(e Event) bool { return e.ID == id })
}

func (b *box) clone() *box {
	return &box{Pending: slices.Clone(b.Pending), Told: maps.Clone(b.Told)}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
