package intents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Path is where a Sender is served.
const Path = "/intents/v1/"

const (
	streamPath = Path + "stream"
	// beat is how often a reader hears of a Sender at least.
	beat = time.Second
	// SilentAfter is how long a process may be silent until nothing is written for any policy.
	SilentAfter = 5 * beat
	// perLine bounds the intents of a line; after so many bytes of them it has no more, either.
	perLine      = 256
	perLineBytes = 1 << 20
	// maxLine bounds a line of the stream, in bytes: an intent has an object of at most a few megabytes.
	maxLine = 64 << 20
	// maxBatch bounds a batch, in bytes of its lines: it is kept until its frontier.
	maxBatch = 1 << 30
	// writeTimeout is how long a reader may take for a batch's part.
	writeTimeout = 30 * time.Second
)

// frontier ends a batch: with it, a reader has all that the Sender had to say.
type frontier struct {
	Seq       uint64 `json:"seq"`
	Policies  int    `json:"policies"` // what a reader must have now
	Intents   int    `json:"intents"`
	Owners    uint64 `json:"owners"` // how often who manages targets has changed
	Unsettled string `json:"unsettled,omitempty"`
	Evaluated bool   `json:"evaluated"` // it is known which members are judged
}

// line is one line of the stream.
type line struct {
	Hello    *hello            `json:"hello,omitempty"`    // the first, and the only one of it
	Policy   *policyLine       `json:"policy,omitempty"`   // what has changed of a policy
	Judged   map[string]string `json:"judged,omitempty"`   // UIDs of the members that are judged
	Settled  bool              `json:"settled,omitempty"`  // Judged is new, if only empty
	Frontier *frontier         `json:"frontier,omitempty"` // the end of a batch
}

// hello says whose stream it is.
type hello struct{ Process, Epoch string }

type policyLine struct {
	Name    string            `json:"name"`
	Gone    bool              `json:"gone,omitempty"`
	All     bool              `json:"all,omitempty"`
	Spec    json.RawMessage   `json:"spec,omitempty"`
	Version string            `json:"version,omitempty"`
	Ready   bool              `json:"ready,omitempty"`
	Fleet   int               `json:"fleet,omitempty"`
	Totals  map[string]total  `json:"totals,omitempty"`
	Intents []json.RawMessage `json:"intents,omitempty"`
	Removed []policy.Ref      `json:"removed,omitempty"`
	More    bool              `json:"more,omitempty"` // the next line is of this change, too: intents only
}

// ServeHTTP serves the stream to Receivers. Who may read it is the caller's to decide.
func (s *Sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != streamPath {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "the stream is read by GET", http.StatusMethodNotAllowed)
		return
	}
	reader, err := s.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer s.close(reader)
	w.Header().Set("Content-Type", "application/json-lines")
	out, err := newWriter(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out.send(&line{Hello: &hello{s.opts.Self, s.opts.Epoch}})
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		out.batch(s.take(reader))
		if out.err != nil {
			panic(http.ErrAbortHandler) // the reader starts over
		}
		select {
		case <-r.Context().Done():
			return
		case <-reader.wake:
		case <-ticker.C:
		}
	}
}

// window is that of the compressed stream: intents of one policy are alike.
const window = 256 << 10

// writer writes lines until one fails.
type writer struct {
	encoder *json.Encoder
	zstd    *zstd.Encoder // nil: the reader does not ask for it
	control *http.ResponseController
	err     error
}

// newWriter returns a writer of a response, which is one zstd frame with one window where the reader asks for that.
func newWriter(w http.ResponseWriter, r *http.Request) (*writer, error) {
	out := &writer{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
	if r.Header.Get("Accept-Encoding") != encoding {
		return out, nil
	}
	var err error
	out.zstd, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window),
		zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Encoding", encoding)
	out.encoder = json.NewEncoder(out.zstd)
	return out, nil
}

const encoding = "zstd"

// deadline sets until when what is written must have been. Not all transports have deadlines.
func (w *writer) deadline() {
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); w.err == nil && err != nil && !errors.Is(err, http.ErrNotSupported) {
		w.err = err
	}
}

// flush sends what was written.
func (w *writer) flush() {
	w.deadline()
	if w.err == nil && w.zstd != nil {
		w.err = w.zstd.Flush()
	}
	if w.err == nil {
		w.err = w.control.Flush()
	}
}

func (w *writer) send(l *line) {
	if w.deadline(); w.err == nil {
		w.err = w.encoder.Encode(l)
	}
}

func (w *writer) batch(b *batch) {
	for n := range b.changes {
		w.change(&b.changes[n])
	}
	if b.settled {
		w.send(&line{Judged: b.judged, Settled: true})
	}
	w.send(&line{Frontier: &b.frontier})
	w.flush()
}

func (w *writer) change(c *change) {
	l := &policyLine{Name: c.policy, Gone: c.gone, All: c.all, Version: c.version, Ready: c.ready, Fleet: c.fleet, Totals: c.totals, Removed: c.removed}
	if c.spec != nil {
		var err error
		if l.Spec, err = MarshalSpec(c.spec); err != nil {
			w.err = fmt.Errorf("policy %q: %w", c.policy, err)
			return
		}
	}
	for list := c.intents; ; {
		for bytes := 0; len(list) > 0 && len(l.Intents) < perLine && bytes < perLineBytes; list = list[1:] {
			text, err := MarshalIntent(list[0])
			if err != nil {
				w.err = fmt.Errorf("policy %q: %w", c.policy, err)
				return
			}
			l.Intents, bytes = append(l.Intents, text), bytes+len(text)
		}
		l.More = len(list) > 0
		w.send(&line{Policy: l})
		if !l.More {
			return
		}
		l = &policyLine{Name: c.policy}
	}
}

// errStream is returned for a stream that is none of a Sender.
var errStream = errors.New("it is no stream of intents")

// read reads the stream of a process, and gives its batches to take, until it ends. alive is told of each line. A batch has no more than
// so many bytes.
func read(ctx context.Context, body io.Reader, process string, most int64, alive func(), take func(context.Context, *batch) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	g := gathering{batch: &batch{restart: true}}
	greeted, bytes := false, int64(0)
	for lines.Scan() {
		alive()
		if bytes += int64(len(lines.Bytes())); bytes > most {
			return fmt.Errorf("%w: a batch has more than %d bytes", errStream, most)
		}
		var l line
		if err := strictly(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("%w: %w", errStream, err)
		}
		if !greeted {
			if l.Hello == nil || l.Hello.Process != process {
				return fmt.Errorf("%w of process %q", errStream, process)
			}
			greeted = true
			continue
		}
		ended, err := g.add(&l)
		if err != nil {
			return fmt.Errorf("%w: %w", errStream, err)
		}
		if !ended {
			continue
		}
		if err := take(ctx, g.batch); err != nil {
			return err
		}
		g.batch, bytes = &batch{}, 0
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// gathering makes a batch of lines.
type gathering struct {
	batch *batch
	more  bool // the next line is of the last change
}

// add takes a line, and reports whether the batch has ended.
func (g *gathering) add(l *line) (ended bool, err error) {
	b := g.batch
	switch {
	case g.more && l.Policy == nil:
		return false, errors.New("the rest of a policy's intents is missing")
	case l.Policy != nil:
		return false, g.addPolicy(l.Policy)
	case l.Settled:
		b.settled, b.judged = true, l.Judged
	case l.Frontier != nil:
		b.frontier = *l.Frontier
		if b.frontier.Evaluated && b.settled && b.judged == nil {
			b.judged = map[string]string{}
		}
		return true, nil
	default:
		return false, errors.New("an empty line")
	}
	return false, nil
}

func (g *gathering) addPolicy(l *policyLine) error {
	c, err := l.change()
	if err != nil {
		return err
	}
	rest := g.more
	g.more = l.More
	if !rest {
		g.batch.changes = append(g.batch.changes, c)
		return nil
	}
	last := &g.batch.changes[len(g.batch.changes)-1]
	if c.policy != last.policy || c.gone || c.all || c.spec != nil || len(c.removed) > 0 {
		return fmt.Errorf("what follows the intents of policy %q is not the rest of them", last.policy)
	}
	last.intents = append(last.intents, c.intents...)
	return nil
}

func (l *policyLine) change() (change, error) {
	c := change{policy: l.Name, gone: l.Gone, all: l.All, version: l.Version, ready: l.Ready, fleet: l.Fleet, totals: l.Totals, removed: l.Removed}
	if l.Spec != nil {
		spec, err := UnmarshalSpec(l.Spec)
		if err != nil {
			return c, err
		}
		c.spec = spec
	}
	c.intents = make([]*remediate.Intent, 0, len(l.Intents))
	for _, text := range l.Intents {
		i, err := UnmarshalIntent(text)
		if err != nil {
			return c, err
		}
		c.intents = append(c.intents, i)
	}
	return c, nil
}
