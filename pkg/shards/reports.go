package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/shards/internal/coordinator"
)

const (
	reportPath = "/shards/v1/report"

	maxReport  = 64 << 20
	maxVersion = 1 << 52 // that a peer may have seen: no map has it
	maxMembers = 100_000
)

// EpochError is the error of an answer of another epoch than the Lease of the process says: the process has started again.
type EpochError struct {
	ID        string
	Got, Want aggregate.Revision
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("process %s answers as epoch %d, and its Lease says %d", e.ID, e.Got, e.Want)
}

// report is what a process says of itself to the leader.
type report struct {
	ID       string         `json:"id"`
	Epoch    uint64         `json:"epoch"`
	Version  int64          `json:"version"` // of the map that it has applied
	Seen     int64          `json:"seen"`    // of the map by which it holds what it holds
	Policies string         `json:"policies,omitempty"`
	Holds    []reportedHold `json:"holds"`
}

type reportedHold struct {
	Name   string  `json:"name"`
	UID    string  `json:"uid,omitempty"`
	Role   string  `json:"role"`
	Ready  bool    `json:"ready,omitempty"`
	Known  bool    `json:"measured,omitempty"`
	Bytes  float64 `json:"bytes,omitempty"`
	Deltas float64 `json:"deltasPerSecond,omitempty"`
	CPU    float64 `json:"cpu,omitempty"`
}

var roleNames = map[aggregate.Role]string{aggregate.Judge: "judge", aggregate.Standby: "standby", aggregate.Joining: "joining"}

// report returns what this process says of itself.
func (s *Shards) report() *report {
	m, _ := s.Map()
	out := &report{ID: s.o.ID, Epoch: uint64(s.o.Epoch), Policies: clip.Text(s.o.Policies(), 256)}
	if m != nil {
		out.Version = m.Version
		if s.o.Applied != nil {
			out.Version = min(out.Version, s.o.Applied())
		}
	}
	holds := s.holds.Load()
	out.Seen = holds.version
	out.Holds = make([]reportedHold, 0, len(holds.members))
	for name, h := range holds.members {
		r := reportedHold{Name: name, UID: h.uid, Role: roleNames[h.role], Ready: s.o.Ready(name)}
		if load, known := s.o.Measure(name); known {
			r.Known, r.Bytes, r.Deltas, r.CPU = true, finite(load.Bytes), finite(load.Deltas), finite(load.CPU)
		}
		out.Holds = append(out.Holds, r)
	}
	return out
}

// finite returns what JSON has a number for.
func finite(x float64) float64 {
	if x > 0 && x < 1e15 {
		return x
	}
	return 0
}

// decided returns a report as the leader thinks of it.
func (r *report) decided(at time.Time) (*coordinator.Report, error) {
	if r.Version < 0 || r.Version >= maxVersion || r.Seen < 0 || r.Seen >= maxVersion {
		return nil, fmt.Errorf("version %d or %d is none of a map", r.Version, r.Seen)
	}
	if len(r.Holds) > maxMembers {
		return nil, fmt.Errorf("it holds %d members, more than %d", len(r.Holds), maxMembers)
	}
	out := &coordinator.Report{At: at, Epoch: r.Epoch, Version: r.Version, Seen: r.Seen, Policies: clip.Text(r.Policies, 256), Holds: make(map[string]coordinator.Hold, len(r.Holds))}
	for _, h := range r.Holds {
		out.Holds[h.Name] = coordinator.Hold{
			UID: h.UID, Judge: h.Role == roleNames[aggregate.Judge], Ready: h.Ready, Measured: h.Known,
			Load: Load{Bytes: finite(h.Bytes), Deltas: finite(h.Deltas), CPU: finite(h.CPU)},
		}
	}
	return out, nil
}

// Handler serves what peers ask, below /shards/v1/, on a listener with TLS.
func (s *Shards) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+reportPath, func(w http.ResponseWriter, r *http.Request) {
		if _, is := PeerOf(r); !is {
			http.Error(w, "only peers may ask", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(s.report()); err != nil {
			s.log.Debug("a report was not sent", "error", err)
		}
	})
	return mux
}

// ask returns what a peer reports.
func (s *Shards) ask(ctx context.Context, p Peer) (*coordinator.Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+reportPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage)) //nolint:errcheck // what there is of it
		return nil, fmt.Errorf("%s: %s", resp.Status, clip.Line(string(text), maxMessage))
	}
	var r report
	body := &io.LimitedReader{R: resp.Body, N: maxReport}
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		if body.N <= 0 {
			err = fmt.Errorf("it is longer than %d bytes", maxReport)
		}
		return nil, err
	}
	if r.ID != p.ID {
		return nil, errors.New("it is the report of another process")
	}
	if r.Epoch != uint64(p.Epoch) {
		return nil, &EpochError{ID: p.ID, Got: aggregate.Revision(r.Epoch), Want: p.Epoch}
	}
	return r.decided(time.Now())
}

// reports are what processes have last said.
type reports struct {
	asking sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*coordinator.Report // by ID; immutable
	begun  time.Time                      // when they were last asked
	rounds int                            // that have ended
	under  bool                           // one is under way
}

func (r *reports) latest() map[string]*coordinator.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// ended reports whether all were asked once.
func (r *reports) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds > 0
}

func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.begun, r.rounds = nil, time.Time{}, 0
}

// askAll asks all peers, and this process, as often as Leases are renewed, without waiting for who does not answer.
func (s *Shards) askAll(ctx context.Context, r *reports) {
	now := time.Now()
	r.mu.Lock()
	due := !r.under && now.Sub(r.begun) >= s.o.Renew*9/10
	if due {
		r.under, r.begun = true, now
	}
	within := s.o.Renew
	if m, _ := s.Map(); r.rounds == 0 && m != nil { // the map says who has what: one that is lost does not hold up the others
		within = s.o.Renew * 2 / 5
	}
	r.mu.Unlock()
	if !due {
		return
	}
	r.asking.Go(func() {
		said := s.askPeers(ctx, within)
		r.mu.Lock()
		for id, was := range r.all { // who does not answer this time has said that
			if _, again := said[id]; !again {
				silent := *was
				silent.Silent = true
				said[id] = &silent
			}
		}
		r.all, r.under = said, false
		r.rounds++
		r.mu.Unlock()
		s.consider.Fire()
	})
}

// askPeers returns what all say who answer within a time.
func (s *Shards) askPeers(ctx context.Context, within time.Duration) map[string]*coordinator.Report {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	said := map[string]*coordinator.Report{}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, p := range s.peers.list() {
		asking.Go(func() {
			r, err := s.ask(ctx, p)
			if err != nil {
				s.metrics.failed.WithLabelValues("report").Inc()
				s.log.Debug("a peer does not report", "peer", p.ID, "error", err)
				if errors.Is(err, syscall.ECONNREFUSED) {
					s.mu.Lock()
					s.leases.Refused(p.ID, strings.TrimPrefix(p.URL, "https://"), began)
					s.mu.Unlock()
				}
				return
			}
			mu.Lock()
			said[p.ID] = r
			mu.Unlock()
		})
	}
	own, err := s.report().decided(time.Now())
	asking.Wait()
	if err == nil {
		said[s.o.ID] = own
	}
	return said
}
