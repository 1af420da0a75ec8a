package exchange

import (
	"fmt"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// receiver makes sections of the frames of one stream. Its methods are called by one goroutine.
type receiver struct {
	link   *link
	frames *wire.Reader
	cancel func(error)
	hello  *wire.Hello
	known  bool // the state was told, in this stream or before
	batch  *wire.Begin
	state  map[string]bool // the members of a state that is under way
	got    *incoming
	record aggregate.Record // to see whether it is one
}

// incoming is a section that is under way: what is kept of it is what was received, until its end says that it is right.
type incoming struct {
	wire.Member
	taken  *aggregate.Member // what JSON says; nil: nothing
	hash   uint64            // of JSON
	member *member           // nil: it is not taken
	scopes []*incomingScope
	kinds  map[aggregate.Kind]bool
	bytes  int64 // of changes
	size   int64 // of all that is kept
	arena  []byte
}

type incomingScope struct {
	wire.Scope
	gone    bool
	hash    uint64
	changes []change
}

// change is a record, or the name of one that is gone.
type change struct {
	gone    bool
	payload []byte
}

// frame takes one frame.
func (r *receiver) frame(t wire.Type, p []byte) error {
	if r.hello == nil {
		return r.begin(t, p)
	}
	if err := r.order(t); err != "" {
		return r.frames.Malformed(err)
	}
	var err error
	switch t {
	case wire.TypePing:
	case wire.TypeBegin:
		var b wire.Begin
		if b, err = wire.ParseBegin(p); err == nil {
			err = r.beginBatch(b)
		}
	case wire.TypeGone:
		r.link.gone(string(p))
	case wire.TypeMember:
		return r.member(p)
	case wire.TypeScope, wire.TypeNoScope:
		return r.scope(t, p)
	case wire.TypeRecord, wire.TypeDelete:
		return r.change(t, p)
	case wire.TypeEnd:
		return r.end(p)
	case wire.TypeFrontier:
		return r.frontier(p)
	}
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	return nil
}

// order returns why a frame must not come now, "" if it may.
func (r *receiver) order(t wire.Type) string {
	switch t {
	case wire.TypeHello:
		return "it is not the first"
	case wire.TypeBegin:
		if r.batch != nil {
			return "a batch is under way"
		}
	case wire.TypeMember, wire.TypeGone:
		if r.batch == nil || r.got != nil {
			return "no batch is under way, or a member"
		}
	case wire.TypeScope, wire.TypeNoScope, wire.TypeEnd:
		if r.got == nil {
			return "no member is under way"
		}
	case wire.TypeRecord, wire.TypeDelete:
		if r.got == nil || r.got.member != nil && (len(r.got.scopes) == 0 || r.got.scopes[len(r.got.scopes)-1].gone) {
			return "no scope is under way"
		}
	case wire.TypeFrontier:
		if r.got != nil {
			return "a member is under way"
		}
	}
	return ""
}

// begin takes the first frame.
func (r *receiver) begin(t wire.Type, p []byte) error {
	if t != wire.TypeHello {
		return r.frames.Malformed("it comes before hello")
	}
	h, err := wire.ParseHello(p)
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	if h.Version != wire.Version || h.Epoch == 0 {
		return r.frames.Malformed(fmt.Sprintf("version %d or epoch %d is not known here", h.Version, h.Epoch))
	}
	l := r.link
	if h.Process != l.peer.ID {
		return fmt.Errorf("%w: %q", ErrProcess, h.Process)
	}
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	if h.Resumed && (l.position == 0 || h.Epoch != l.epoch) {
		return r.frames.Malformed("it resumes what was not asked for")
	}
	r.hello, r.known = &h, h.Resumed
	l.id, l.asking = h.Stream, true
	l.askLocked()
	return nil
}

func (r *receiver) beginBatch(b wire.Begin) error {
	if !r.known && !b.State {
		return r.frames.Malformed("it has changes of what was not told")
	}
	r.batch = &b
	if b.State {
		r.state = map[string]bool{}
		r.link.metrics.states.Inc()
	}
	if !r.link.begin(b) {
		return r.frames.Malformed(fmt.Sprintf("it is of %d, which was not asked for", b.Interest))
	}
	return nil
}

func (r *receiver) member(p []byte) error {
	m, err := wire.ParseMember(p)
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	if len(m.Name) > maxName {
		return r.frames.Malformed("the member's name is too long")
	}
	in := &incoming{Member: m, size: int64(len(p))}
	if in.JSON = nil; len(m.JSON) > 0 {
		taken, err := wire.ParseMemberJSON(m.Name, m.JSON)
		if err != nil {
			return r.frames.Malformed(err.Error())
		}
		if in.taken, in.hash = &taken, wire.Hash(m.JSON); len(taken.UID) > maxName {
			return r.frames.Malformed("the member's UID is too long")
		}
	}
	if m.Full && in.taken == nil {
		return r.frames.Malformed("it says nothing of the member")
	}
	if r.state != nil {
		if r.state[m.Name] || !m.Full {
			return r.frames.Malformed("a state has each member once, and all of it")
		}
		r.state[m.Name] = true
	}
	r.got = in
	return r.link.take(in)
}

func (r *receiver) scope(t wire.Type, p []byte) error {
	if r.got.member == nil {
		return nil
	}
	s := &incomingScope{gone: t == wire.TypeNoScope}
	if s.gone {
		s.Kind = aggregate.Kind(p)
	} else {
		var err error
		if s.Scope, err = wire.ParseScope(p); err != nil {
			return r.frames.Malformed(err.Error())
		}
		s.hash = wire.ScopeHash(p)
		if len(s.Status.Reason) > maxReason+len("…") {
			return r.frames.Malformed("the reason is too long")
		}
	}
	if r.got.kinds == nil {
		r.got.kinds = map[aggregate.Kind]bool{}
	}
	if r.got.kinds[s.Kind] {
		return r.frames.Malformed("a member has each scope once")
	}
	if r.got.kinds[s.Kind] = true; len(r.got.kinds) > maxKinds {
		return fmt.Errorf("%w: more than %d scopes of member %s", ErrBound, maxKinds, r.got.Name)
	}
	if err := r.account(p); err != nil {
		return err
	}
	r.got.scopes = append(r.got.scopes, s)
	return nil
}

// account counts a payload that is kept of the section.
func (r *receiver) account(p []byte) error {
	const fixed = 64
	in := r.got
	if in.size += int64(len(p)) + fixed; in.size > r.link.im.o.MaxSection {
		return fmt.Errorf("%w: more than %d bytes of member %s at once", ErrBound, r.link.im.o.MaxSection, in.Name)
	}
	return nil
}

func (r *receiver) change(t wire.Type, p []byte) error {
	in := r.got
	if in.member == nil {
		return nil
	}
	if len(p) > r.link.im.o.MaxRecord {
		return r.frames.Malformed(fmt.Sprintf("its %d bytes exceed %d", len(p), r.link.im.o.MaxRecord))
	}
	if err := r.account(p); err != nil {
		return err
	}
	in.bytes += int64(len(p))
	s := in.scopes[len(in.scopes)-1]
	gone := t == wire.TypeDelete
	var err error
	switch {
	case gone && s.Replace:
		return r.frames.Malformed("the scope is replaced")
	case gone:
		_, err = wire.ParseDelete(p)
	default:
		err = wire.ParseRecord(p, &r.record)
	}
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	s.changes = append(s.changes, change{gone: gone, payload: in.keep(p)})
	return nil
}

// keep copies a payload.
func (in *incoming) keep(p []byte) []byte {
	const chunk = 64 << 10
	if len(in.arena)+len(p) > cap(in.arena) {
		in.arena = make([]byte, 0, max(len(p), min(chunk, 4*len(p)+int(in.bytes))))
	}
	n := len(in.arena)
	in.arena = append(in.arena, p...)
	return in.arena[n:len(in.arena):len(in.arena)]
}

func (r *receiver) end(p []byte) error {
	end, err := wire.ParseEnd(p)
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	in := r.got
	r.got = nil
	if in.member != nil {
		if err := r.apply(in, end); err != nil {
			return err
		}
	}
	r.link.told(in)
	return nil
}

func (r *receiver) frontier(p []byte) error {
	f, err := wire.ParseFrontier(p)
	if err != nil {
		return r.frames.Malformed(err.Error())
	}
	l := r.link
	switch {
	case f.Epoch != r.hello.Epoch:
		return r.frames.Malformed("it is of another epoch")
	case r.batch == nil && !r.known:
		return r.frames.Malformed("nothing was told before it")
	case r.batch != nil && f.Sequence != r.batch.Sequence, r.batch == nil && f.Sequence != l.at():
		return r.frames.Malformed("it is of another sequence")
	case r.batch != nil && f.Interest != r.batch.Interest, r.batch == nil && f.Interest != l.asked():
		return r.frames.Malformed("it is of what was not asked for")
	}
	again := l.reach(f, r.state, r.cancel)
	r.known, r.batch, r.state = true, nil, nil
	if again {
		return errAgain
	}
	return nil
}

// at returns the sequence up to which all was told.
func (l *link) at() uint64 {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	return l.position
}

// asked returns the number of what all was told of.
func (l *link) asked() uint64 {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	return l.has.number
}
