package handover

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/time/rate"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
)

// Path is what a Giver serves.
const Path = "/handover/v1/member"

const (
	contentType = "application/vnd.federator.handover+zstd"
	window      = 256 << 10 // of the compression
	maxName     = 512

	giverStreams = 16              // at a time
	giverWait    = 3 * time.Second // for a turn
	giverRate    = 64 << 20        // bytes a second of all streams, before they are compressed
	giverBurst   = 16 << 20
	giverStall   = 10 * time.Second
)

// GiverOptions are what a Giver gives from. All but Seen and Logger are required.
type GiverOptions struct {
	Index *aggregate.Index
	// Form says what of a kind is held, as in persistence.Options.
	Form func(aggregate.Kind) string
	// Proved returns when a scope was last known to be what the member has; zero: never.
	Proved func(member string, kind aggregate.Kind) time.Time
	// Seen yields since when the violations of a member are there, or of keys of views where it is ""; nil, as what it returns: it is
	// not known.
	Seen func(member string) iter.Seq[Seen]
	// Peer returns which peer a request is from, "" for none.
	Peer   func(*http.Request) string
	Logger *slog.Logger // nil: nothing is logged
	// Stall is for how long a peer may read nothing. 0: 10 s.
	Stall time.Duration
}

// Giver answers who takes members over.
type Giver struct {
	o     GiverOptions
	slots chan struct{}
	seen  chan struct{} // slots of what says since when violations are there: it is short, and does not wait for members
	rate  *rate.Limiter

	mu    sync.Mutex
	given map[string]bool // members that were sent whole, since Forget
	keys  map[string]bool // peers that were told of keys of views since then
}

// NewGiver returns a Giver.
func NewGiver(o GiverOptions) (*Giver, error) {
	if o.Index == nil || o.Form == nil || o.Proved == nil || o.Peer == nil {
		return nil, errors.New("handover: Index, Form, Proved and Peer are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Stall == 0 {
		o.Stall = giverStall
	}
	return &Giver{
		o: o, slots: make(chan struct{}, giverStreams), seen: make(chan struct{}, giverStreams), rate: rate.NewLimiter(giverRate, giverBurst),
		given: map[string]bool{}, keys: map[string]bool{},
	}, nil
}

// Given reports whether a member was sent whole since Forget was called last.
func (g *Giver) Given(member string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.given[member]
}

// GivenKeys reports whether a peer was told of keys of views since Forget was called last.
func (g *Giver) GivenKeys(peer string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys[peer]
}

// Forget has nothing be given any more.
func (g *Giver) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.given)
	clear(g.keys)
}

// ServeHTTP sends a member, or since when violations are there.
func (g *Giver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer := g.o.Peer(r)
	name, uid := r.URL.Query().Get("name"), r.URL.Query().Get("uid")
	seen := r.URL.Path == SeenPath
	switch {
	case peer == "":
		http.Error(w, "only peers may ask", http.StatusForbidden)
		return
	case r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	case name == "" && !seen || len(name) > maxName || len(uid) > maxName:
		http.Error(w, "name is required, of 512 bytes at most", http.StatusBadRequest)
		return
	}
	turn, cancel := context.WithTimeout(r.Context(), giverWait)
	defer cancel()
	slots := g.slots
	if seen {
		slots = g.seen
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-turn.Done():
		w.Header().Set("Retry-After", "1")
		http.Error(w, "others are handed over", http.StatusServiceUnavailable)
		return
	}
	snap := g.o.Index.Newest()
	switch known, is := snap.Member(name); {
	case seen && (name == "" || g.o.Seen == nil):
	case !is:
		http.Error(w, "the member is not held here", http.StatusNotFound)
		return
	case known.UID != uid && known.UID != "" && uid != "":
		http.Error(w, "another member of that name is held here", http.StatusConflict)
		return
	}
	if seen {
		g.giveSeen(w, r, name, peer)
		return
	}
	began := time.Now()
	sent, bytes, err := g.send(w, r, snap, name)
	log := g.o.Logger.With("member", name, "peer", peer, "scopes", sent.Scopes, "objects", sent.Objects, "bytes", bytes, "within", time.Since(began).Round(time.Millisecond))
	if err != nil {
		log.Info("a member was not handed over whole", "error", err)
		panic(http.ErrAbortHandler) // the peer sees that it is not whole
	}
	log.Info("a member was handed over")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.given[name] = true
}

func (g *Giver) giveSeen(w http.ResponseWriter, r *http.Request, member, peer string) {
	list := func(func(Seen) bool) {}
	if g.o.Seen != nil {
		list = g.o.Seen(member)
	}
	if list == nil {
		http.Error(w, "it is not known here since when violations are there", http.StatusNotFound)
		return
	}
	if err := g.sendSeen(w, r, list); err != nil {
		g.o.Logger.Info("since when violations are there was not handed over whole", "member", member, "peer", peer, "error", err)
		panic(http.ErrAbortHandler)
	}
	if member == "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.keys[peer] = true
	}
}

// send writes the response.
func (g *Giver) send(w http.ResponseWriter, r *http.Request, snap *aggregate.Snapshot, name string) (sent persistence.Sent, bytes int64, err error) {
	to := &stallWriter{to: w, control: http.NewResponseController(w), stall: g.o.Stall}
	z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return sent, 0, err
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	sent, err = persistence.Send(r.Context(), z, snap, name, persistence.SendOptions{
		Form:   g.o.Form,
		Proved: func(kind aggregate.Kind) time.Time { return g.o.Proved(name, kind) },
		Flush: func(n int) error {
			if err := z.Flush(); err != nil {
				return err
			}
			if err := to.flush(); err != nil {
				return err
			}
			return g.rate.WaitN(r.Context(), min(n, giverBurst))
		},
	})
	if closed := z.Close(); err == nil {
		err = closed
	}
	return sent, to.bytes, err
}

// stallWriter writes a response, each write within a time.
type stallWriter struct {
	to      http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	bytes   int64
}

func (s *stallWriter) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return 0, fmt.Errorf("the response has no deadline: %w", err)
	}
	n, err := s.to.Write(p)
	s.bytes += int64(n)
	return n, err
}

func (s *stallWriter) flush() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return fmt.Errorf("the response has no deadline: %w", err)
	}
	return s.control.Flush()
}
