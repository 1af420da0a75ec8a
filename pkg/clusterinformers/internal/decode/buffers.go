package decode

import "unsafe"

// Bytes that a watch may hold without a charge: the buffers of small events.
const uncharged = 2 * maxRead

// setCharge sets the bytes that the watch holds, and charges the caller for the difference.
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

// releaseLarge releases the buffers of a large event, before the wait for the next one, and
// sets the charge to what is kept.
func (e *Events) releaseLarge(ev *Event) error {
	large := cap(e.d.t.out) > maxKeptBuffer
	e.d.reset()
	if e.d.shaper != nil {
		e.d.shaper.out = reuse(e.d.shaper.out)
	}
	rec := ev.Record
	*ev = Event{}
	if !large { // the strings of its labels alias the released buffers
		ev.Record.Labels, ev.Record.Owners = rec.Labels[:0], rec.Owners[:0]
	}
	return e.setCharge(len(e.buf) + e.d.footprint())
}

// Close releases the buffers, and their charge.
func (e *Events) Close() {
	e.buf, e.pos, e.end, e.d, e.scratch = nil, 0, 0, nil, nil
	_ = e.setCharge(0) //nolint:errcheck // a lower charge is never refused
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
	return cap(buf) * int(unsafe.Sizeof(one)) // few elements
}
