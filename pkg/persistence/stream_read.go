package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// ReceiveOptions say what is taken of a member that another process sends. All are required.
type ReceiveOptions struct {
	Member, UID string // "": the UID is not known
	// Form is as in Options: a scope of another form is not taken.
	Form func(aggregate.Kind) string
	// Wanted reports whether a kind is to be taken.
	Wanted func(aggregate.Kind) bool
	// MaxObjects and MaxBytes bound what is taken: a scope beyond is not.
	MaxObjects, MaxBytes int64
}

// Received is what was taken.
type Received struct {
	Scopes  map[aggregate.Kind]time.Time // and when each was last known to be what the member has; zero: it never was
	Objects int
	Bytes   int64 // on the heap
	// Left is how many scopes were sent and not taken, and Why the last of them was not.
	Left int
	Why  error
}

// Reasons why a scope is not taken that was sent.
var (
	ErrOtherForm  = errors.New("it is held in another form")
	ErrOverBudget = errors.New("it exceeds the member's budget")
	errTooLarge   = errors.New("it has an object that is too large to be sent, or too many dictionaries")
	errHeld       = errors.New("it is there already")
)

// Receive adds what Send has written to a member of an index, one commit for each scope: Stale, until somebody goes on reading
// it from where the sender had come. The member must be in the index, and its scopes must not have writers. What came whole
// before an error stays.
func Receive(ctx context.Context, r io.Reader, x *aggregate.Index, o ReceiveOptions) (Received, error) {
	in := frames.NewReader(r)
	in.Limit = maxStreamPayload
	s := streamReader{
		index: x, o: o, out: Received{Scopes: map[aggregate.Kind]time.Time{}},
		dictionaries: map[aggregate.DictionaryID]*aggregate.Dictionary{}, seen: map[aggregate.Kind]bool{},
	}
	defer s.close() // of one that did not come whole
	err := s.read(ctx, in)
	return s.out, err
}

type streamReader struct {
	index        *aggregate.Index
	o            ReceiveOptions
	out          Received
	dictionaries map[aggregate.DictionaryID]*aggregate.Dictionary
	seen         map[aggregate.Kind]bool

	frames int              // of the stream
	scope  *aggregate.Scope // whose objects come; nil: none
	kind   aggregate.Kind   // of it
	passes bool             // the objects of a scope come that is not taken
	from   *aggregate.Receiver
	items  []aggregate.Item
	bytes  int64
	status aggregate.Status
	parts  []aggregate.Part
	proved time.Time
	left   uint64 // objects that are to come
}

func (s *streamReader) read(ctx context.Context, in *frames.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := in.Next()
		if errors.Is(err, io.EOF) {
			err = &frames.TornError{}
		}
		if err != nil {
			return err
		}
		ended, err := s.frame(&f)
		if err != nil {
			return fmt.Errorf("frame %d: %w", s.frames, err)
		}
		if ended {
			return nil
		}
		s.frames++
	}
}

// frame takes a frame, and reports whether it is the last.
func (s *streamReader) frame(f *frames.Frame) (ended bool, err error) {
	p := payload{rest: f.Payload}
	switch {
	case s.frames == 0:
		return false, s.header(f)
	case s.frames == 1:
		return false, s.member(f.Kind, &p)
	}
	switch f.Kind {
	case typeScope:
		err = s.begin(&p)
	case typeDictionary:
		if len(s.dictionaries) >= maxStreamDictionaries {
			return false, fmt.Errorf("more than %d dictionaries: %w", maxStreamDictionaries, frames.ErrDoubt)
		}
		d, err := s.index.ReceiveDictionary(f.Payload)
		if err != nil {
			return false, err
		}
		s.dictionaries[d.ID()] = d
		return false, nil
	case typeObjects:
		return false, s.objects(f.Payload)
	case typeVoid:
		if s.scope == nil && !s.passes {
			return false, fmt.Errorf("no scope is begun: %w", frames.ErrDoubt)
		}
		if s.scope != nil {
			s.drop(errTooLarge)
		}
	case typeEnd:
		if n := p.uvarint("the number of scopes"); p.err == nil && (n != uint64(len(s.seen)) || s.scope != nil) {
			p.fail("the end")
		}
		ended = true
	default:
		p.fail("a frame's type")
	}
	if err == nil && p.err == nil && len(p.rest) > 0 {
		p.fail("the end of a frame")
	}
	return ended, errors.Join(err, p.err)
}

func (s *streamReader) header(f *frames.Frame) error {
	var h header
	if f.Kind != frames.TypeHeader || json.Unmarshal(f.Payload, &h) != nil {
		return fmt.Errorf("header: %w", frames.ErrDoubt)
	}
	return h.check(0, streamType, s.o.Member, false)
}

func (s *streamReader) member(kind byte, p *payload) error {
	m := p.member()
	switch {
	case kind != typeMember || p.err != nil:
		return fmt.Errorf("a member: %w", frames.ErrDoubt)
	case m.Name != s.o.Member || m.UID != s.o.UID && m.UID != "" && s.o.UID != "":
		return fmt.Errorf("it is member %q with UID %q: %w", clip(m.Name), clip(m.UID), frames.ErrDoubt)
	}
	return nil
}

func clip(text string) string { return text[:min(len(text), 256)] }

// begin begins a scope.
func (s *streamReader) begin(p *payload) error {
	if len(p.rest) > maxStreamScope {
		return fmt.Errorf("a scope of %d bytes without its objects: %w", len(p.rest), frames.ErrDoubt)
	}
	kind, status, parts := p.state()
	version, resource, form := p.text("a version"), p.text("a resource"), p.text("a form")
	objects, age := p.uvarint("the number of objects"), p.uvarint("since when it is known")
	switch {
	case p.err != nil:
		return p.err
	case s.scope != nil:
		return fmt.Errorf("a scope comes too early: %w", frames.ErrDoubt)
	case s.seen[kind] || len(s.seen) >= maxStreamScopes:
		return fmt.Errorf("one scope more than there may be: %w", frames.ErrDoubt)
	case !isHanded(status.State) || len(parts) == 0 || len(parts) > maxStreamParts || kind == "":
		return fmt.Errorf("a scope that nobody can go on with: %w", frames.ErrDoubt)
	case len(kind) > maxStreamText || len(version) > maxStreamText || len(resource) > maxStreamText || longParts(parts):
		return fmt.Errorf("a scope with long names: %w", frames.ErrDoubt)
	}
	s.seen[kind], s.kind = true, kind
	clear(s.dictionaries)
	if why := s.refuses(kind, form, objects); why != nil {
		s.drop(why)
		return nil
	}
	scope, err := s.index.OpenScopeAs(s.o.Member, kind, version, resource)
	if err != nil {
		return err
	}
	s.scope, s.parts, s.bytes, s.items, s.left, s.passes = scope, parts, 0, nil, objects, false
	if n, _ := scope.Size(); n > 0 {
		s.drop(errHeld)
		return nil
	}
	s.status = aggregate.Status{State: aggregate.Stale, Unread: true, Reason: "handed over by another process, resuming"}
	s.from = scope.Receive(func(id aggregate.DictionaryID) *aggregate.Dictionary { return s.dictionaries[id] })
	s.proved = time.Time{}
	if age > 0 && age < uint64(maxAge/time.Millisecond) {
		s.proved = time.Now().Add(-time.Duration(age-1) * time.Millisecond)
	}
	if objects == 0 {
		return s.commit()
	}
	return nil
}

// maxAge is for how long a proof counts: a longer time is none that a process has run.
const maxAge = 10 * 365 * 24 * time.Hour

func longParts(parts []aggregate.Part) bool {
	for _, p := range parts {
		if len(p.Namespace) > maxStreamText || len(p.ResourceVersion) > maxStreamText || len(p.Served) > maxStreamText || p.ResourceVersion == "" {
			return true
		}
	}
	return false
}

// refuses returns why a scope is not taken.
func (s *streamReader) refuses(kind aggregate.Kind, form string, objects uint64) error {
	switch {
	case !s.o.Wanted(kind):
		return errors.New("it is not held here")
	case form != s.o.Form(kind):
		return ErrOtherForm
	case objects > uint64(max(s.o.MaxObjects-int64(s.out.Objects), 0)):
		return ErrOverBudget
	}
	return nil
}

// objects takes a block of objects.
func (s *streamReader) objects(rest []byte) error {
	switch {
	case s.passes:
		return nil
	case s.scope == nil:
		return fmt.Errorf("objects of no scope: %w", frames.ErrDoubt)
	}
	for len(rest) > 0 {
		if s.left == 0 {
			return fmt.Errorf("more objects than there were to be: %w", frames.ErrDoubt)
		}
		var item aggregate.Item
		var err error
		if item, rest, err = s.from.Next(rest); err != nil {
			return err
		}
		s.left--
		s.items = append(s.items, item)
		if s.bytes += item.Size(); s.bytes > s.o.MaxBytes-s.out.Bytes {
			s.drop(ErrOverBudget)
			return nil
		}
	}
	if s.left == 0 {
		return s.commit()
	}
	return nil
}

// drop takes nothing of the scope that has begun: what comes of it is passed over.
func (s *streamReader) drop(why error) {
	s.out.Left++
	s.out.Why = fmt.Errorf("kind %s: %w", s.kind, why)
	s.close()
	s.passes = true
}

// close lets go of the scope whose objects came.
func (s *streamReader) close() {
	if s.scope != nil {
		s.scope.Close()
		s.scope, s.from, s.items = nil, nil, nil
	}
}

// commit adds the scope, which has come whole, and how far it was read, in one step.
func (s *streamReader) commit() error {
	for _, p := range s.parts {
		s.scope.Reached(p)
	}
	_, err := s.scope.Replace(s.items, s.status)
	if err != nil {
		return err
	}
	s.out.Objects += len(s.items)
	s.out.Bytes += s.bytes
	s.out.Scopes[s.kind] = s.proved
	s.close()
	return nil
}
