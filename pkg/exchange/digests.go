package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// digests are those of a member's scopes, calculated from the export itself and not from what was noted as it changed.
type digests struct {
	Epoch    uint64                           `json:"epoch,string"`
	Sequence uint64                           `json:"sequence,string"`
	Interest uint64                           `json:"interest,string"` // the number of what the importer asks for
	Scopes   map[aggregate.Kind]digestOfScope `json:"scopes"`
}

// digestOfScope is what a scope is from a sequence on, until that of the digests.
type digestOfScope struct {
	Records int    `json:"records"`
	Digest  uint64 `json:"digest,string"` // of what is said of the scope, and the records
	Changed uint64 `json:"changed,string"`
}

// audits are digests that were calculated, to be used again while their scope has not changed.
type audits struct {
	turn  chan struct{} // has room for who calculates: one at a time
	known map[ScopeOf]audited
	swept time.Time
}

type audited struct {
	digestOfScope
	at time.Time
}

var errNoStream = errors.New("there is no such stream")

var errNotJudged = errors.New("the member is not judged here")

func (x *Exporter) serveDigests(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	out, err := x.digestsInTurn(r.Context(), query.Get("member"), query.Get("stream"))
	switch {
	case errors.Is(err, errNoStream):
		http.Error(w, err.Error(), http.StatusGone)
	case errors.Is(err, errNotJudged):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, "the member's records cannot be read", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		// It stays until the response has ended, which is written after this returns.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(x.o.Stall)) //nolint:errcheck // as it is, then
		_ = json.NewEncoder(w).Encode(out)                                            //nolint:errcheck // the importer asks again
	}
}

// digestsInTurn calculates digests, for one importer after the other: to calculate costs a look at all records.
func (x *Exporter) digestsInTurn(ctx context.Context, member, of string) (digests, error) {
	select {
	case x.audit.turn <- struct{}{}:
		defer func() { <-x.audit.turn }()
		return x.digests(ctx, member, of)
	case <-ctx.Done():
		return digests{}, context.Cause(ctx)
	}
}

// noted is what the table has of a scope.
type noted struct {
	digestOfScope
	info, total uint64
	failed      bool
}

// noted returns what the table has of a member, and what the importer of a stream asks for; "": everything.
func (x *Exporter) noted(member, of string) (now Export, sequence uint64, scopes map[aggregate.Kind]noted, asks asked, err error) {
	asks.set = interest.Everything()
	x.mu.Lock()
	defer x.mu.Unlock()
	if of != "" {
		id, err := strconv.ParseUint(of, 10, 64)
		s := x.streams[id]
		if err != nil || s == nil {
			return nil, 0, nil, asks, errNoStream
		}
		asks = s.wants
	}
	m := x.table.members[member]
	if m == nil {
		return nil, 0, nil, asks, errNotJudged
	}
	scopes = make(map[aggregate.Kind]noted, len(m.scopes))
	for kind, s := range m.scopes {
		scopes[kind] = noted{
			digestOfScope: digestOfScope{Records: len(s.sum.Records), Digest: wire.Digest(s.info, s.sum.Total), Changed: s.changed},
			info:          s.info, total: s.sum.Total, failed: s.failed,
		}
	}
	return x.table.export, x.table.sequence, scopes, asks, nil
}

// digests calculates those of a member that are not known. Where the export is not what was noted, a change of it was not
// told: the scope is looked at again, and all importers are told what differs.
func (x *Exporter) digests(ctx context.Context, member, of string) (digests, error) {
	now, sequence, scopes, asks, err := x.noted(member, of)
	out := digests{Epoch: x.o.Epoch, Sequence: sequence, Interest: asks.number, Scopes: map[aggregate.Kind]digestOfScope{}}
	if err != nil {
		return out, err
	}
	for info := range now.Scopes(member) {
		of := ScopeOf{member, info.Kind}
		s, ok := scopes[info.Kind]
		delete(scopes, info.Kind)
		if !ok || !s.failed && wire.ScopeHash(scopeFrame(info, info.Status)) != s.info {
			x.disagrees(of)
			continue
		}
		if d, ok := x.audited(of, s.digestOfScope); ok || s.failed {
			if s.failed {
				d = s.digestOfScope
			}
			out.Scopes[info.Kind] = d
			continue
		}
		records, total, err := sumOf(ctx, now, of)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil || total != s.total || records != s.Records {
			x.disagrees(of)
			continue
		}
		out.Scopes[info.Kind] = s.digestOfScope
		x.remember(of, s.digestOfScope)
	}
	for kind := range scopes {
		x.disagrees(ScopeOf{member, kind})
	}
	if asks.set.IsEverything() {
		return out, nil
	}
	return out, x.digestsOf(ctx, now, member, asks.set, &out)
}

// digestsOf makes digests those of what a set has keys of.
func (x *Exporter) digestsOf(ctx context.Context, now Export, member string, set *interest.Set, d *digests) error {
	for kind, is := range d.Scopes {
		keys, err := keysOf(ctx, now, ScopeOf{member, kind}, set)
		if err != nil {
			return err
		}
		x.mu.Lock()
		s := (*scopeSum)(nil)
		if m := x.table.members[member]; m != nil {
			s = m.scopes[kind]
		}
		if s == nil || s.changed != is.Changed {
			delete(d.Scopes, kind) // it has changed meanwhile
			x.mu.Unlock()
			continue
		}
		is.Records = 0
		total := uint64(0)
		for _, key := range keys {
			if hash := s.sum.Records[key]; hash != 0 {
				is.Records, total = is.Records+1, total+hash
			}
		}
		is.Digest = wire.Digest(s.info, total)
		d.Scopes[kind] = is
		x.mu.Unlock()
	}
	return nil
}

// keysOf returns the hashes of the names of the objects of a scope that a set has keys of.
func keysOf(ctx context.Context, now Export, of ScopeOf, set *interest.Set) (keys []uint64, err error) {
	err = now.Keys(of.Member, of.Kind, func(namespace, name string, k *interest.Keys) error {
		if set.Wants(k) {
			keys = append(keys, wire.Key(namespace, name))
		}
		return ctx.Err()
	})
	return keys, err
}

func sumOf(ctx context.Context, now Export, of ScopeOf) (records int, total uint64, err error) {
	var payload []byte
	err = now.Records(of.Member, of.Kind, func(r *aggregate.Record) error {
		payload = wire.AppendRecord(payload[:0], r)
		total += wire.RecordHash(payload)
		records++
		return ctx.Err()
	})
	return records, total, err
}

// audited returns a digest that was calculated not long ago, if the scope has not changed.
func (x *Exporter) audited(of ScopeOf, now digestOfScope) (digestOfScope, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, ok := x.audit.known[of]
	return d.digestOfScope, ok && d.digestOfScope == now && time.Since(d.at) < x.o.Audit
}

// remember also forgets what is too old.
func (x *Exporter) remember(of ScopeOf, d digestOfScope) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if now.Sub(x.audit.swept) > x.o.Audit {
		x.audit.swept = now
		for of, d := range x.audit.known {
			if now.Sub(d.at) > x.o.Audit {
				delete(x.audit.known, of)
			}
		}
	}
	x.audit.known[of] = audited{d, now}
}

// disagrees has a scope looked at again.
func (x *Exporter) disagrees(of ScopeOf) {
	x.metrics.missed.Inc()
	x.o.Logger.Error("a change was not told to other processes; it is now", "member", of.Member, "kind", string(of.Kind))
	x.pendingMu.Lock()
	if x.pending.add(x.newest, Changes{Scopes: []ScopeOf{of}}); !x.pending.all {
		x.pending.renew(of)
	}
	x.pendingMu.Unlock()
	x.wake.Fire()
}
