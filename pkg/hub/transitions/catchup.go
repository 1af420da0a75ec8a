package transitions

import (
	"context"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/history"
)

// catching is one look at all objects for what the log does not have.
type catching struct {
	*Recorder

	ctx     context.Context // of the look, in methods that a list calls
	leads   bool
	members map[string]bool
	since   time.Time // before, what the log does not have it may have lost
	found   []dated

	asked  map[history.Query]bool
	logged map[uint64]bool // digests of the keys of what the log has, as far as it was asked
	// wasSuspended is whether a FleetPolicy was recorded as suspended last, by its UID.
	wasSuspended map[string]bool
	err          error
}

// dated is a record with the time that orders it among others.
type dated struct {
	when   time.Time
	record history.Record
}

// maxRead bounds how many records of a policy are looked through.
const maxRead = 1_000_000

// object takes what one object says.
func (c *catching) object(records []history.Record) {
	var when time.Time // of an object in its order, whatever its times
	for i := range records {
		x := &records[i]
		if x.MemberTime != nil && x.MemberTime.After(when) {
			when = *x.MemberTime
		}
		if c.err != nil || !c.mine(x, c.leads, c.members) || !when.IsZero() && when.Before(c.since) {
			continue
		}
		if _, known := c.seen[xxhash.Sum64String(x.Key)]; known {
			continue
		}
		c.ask(x)
		if c.isNew(x) && !c.logged[xxhash.Sum64String(x.Key)] {
			c.found = append(c.found, dated{when, *x})
		}
	}
	if len(c.found) >= maxCaught {
		c.err = c.flush()
	}
}

// flush records what was found, in order of time, and returns what went wrong so far.
func (c *catching) flush() error {
	slices.SortStableFunc(c.found, func(a, b dated) int { return a.when.Compare(b.when) })
	records := make([]history.Record, len(c.found))
	for i := range c.found {
		records[i] = c.found[i].record
	}
	c.found = nil
	if c.err == nil {
		c.err = c.tell(c.ctx, records)
	}
	return c.err
}

// ask reads what the log has of what a record is about, once: of a policy all, otherwise of the object on the hub.
func (c *catching) ask(x *history.Record) {
	q := history.Query{Policy: x.Policy, Backward: true}
	if x.Policy == "" {
		q = history.Query{Kind: string(x.Kind), Namespace: x.Namespace, Name: x.Name, Backward: true}
	}
	c.read(q)
}

// read reads what the log has of a query, once.
func (c *catching) read(q history.Query) {
	if c.asked[q] || c.err != nil {
		return
	}
	c.asked[q] = true
	n := 0
	for x, err := range c.opts.Log.Read(q) {
		if err != nil {
			c.err = err
			return
		}
		if n++; n == maxRead || n%1024 == 0 && c.ctx.Err() != nil {
			return
		}
		if x.Type != history.Action && x.Type != history.Policy {
			continue
		}
		c.logged[xxhash.Sum64String(x.Key)] = true
		if _, newer := c.wasSuspended[x.UID]; isSuspension(&x) && !newer {
			c.wasSuspended[x.UID] = x.Transition == history.Suspended
		}
	}
}

// isSuspension reports whether a record is about a FleetPolicy that is suspended, or is not any more.
func isSuspension(x *history.Record) bool {
	return x.Kind == history.FleetPolicyKind && (x.Transition == history.Suspended || x.Transition == history.Resumed)
}

// openStops returns the stops in a namespace that are recorded, and of which no end is.
func (c *catching) openStops(namespace string) (open []history.Record, err error) {
	ended := map[string]bool{}
	for x, err := range c.opts.Log.Read(history.Query{Kind: string(history.StopKind), Namespace: namespace, Backward: true}) {
		switch {
		case err != nil:
			return nil, err
		case x.Type != history.Policy || ended[x.UID]:
		default:
			if ended[x.UID] = true; x.Transition == history.Stopped {
				open = append(open, x)
			}
		}
	}
	return open, nil
}
