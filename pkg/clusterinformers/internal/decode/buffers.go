package decode

import "unsafe"

// What a watch may hold without being charged for it: the buffers of small events.
const uncharged = 2 * maxRead

// setCharge sets what the watch holds, in bytes, and charges the caller for what it adds.
func (e *Events) setCharge(n int) error {
	if n <= uncharged {
		n = 0
	}
	if n == e.charged || e.Charge == nil {
		return nil
	}
	if err := e.Charge(int64(n - e.charged)); err != nil {
		return err
	}
	e.charged = n
	return nil
}

// releaseLarge gives up what one large event has left behind, before the wait for the next one,
// and sets the charge to what is kept.
func (e *Events) releaseLarge(ev *Event) error {
	large := cap(e.d.t.out) > maxKeptBuffer
	e.d.reset()
	if e.d.shaper != nil {
		e.d.shaper.out = reuse(e.d.shaper.out)
	}
	rec := ev.Record
	*ev = Event{}
	if !large { // the strings of its labels are parts of what was given up
		ev.Record.Labels, ev.Record.Owners = rec.Labels[:0], rec.Owners[:0]
	}
	return e.setCharge(len(e.buf) + e.d.footprint())
}

// Close gives up the buffers, and the charge for them.
func (e *Events) Close() {
	e.buf, e.pos, e.end, e.slow = nil, 0, 0, nil
	_ = e.setCharge(0) //nolint:errcheck // less is never refused
}

// footprint returns the bytes of the buffers that the decoder keeps.
func (d *Decoder) footprint() int {
	n := footprint(d.t.out) + footprint(d.t.sorted) + footprint(d.t.members) + footprint(d.t.slots) +
		footprint(d.t.spans) + footprint(d.t.entries)
	if d.shaper != nil {
		n += footprint(d.shaper.out)
	}
	return n
}

func footprint[T any](buf []T) int {
	var one T
	return cap(buf) * int(unsafe.Sizeof(one)) // a small number
}
