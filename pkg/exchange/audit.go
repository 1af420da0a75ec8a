package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// maxDigests bounds what a peer answers with the digests of a member.
const maxDigests = 4 << 20

// audit compares one member of a peer after the other with what the peer has, all of them once in a while.
func (l *link) audit(ctx context.Context) {
	last := ""
	for {
		names := l.sourced()
		wait := l.im.o.Audit / time.Duration(max(1, len(names)))
		if err := l.waitForAudit(ctx, wait); err != nil {
			return
		}
		suspect, name := l.nextAudit(names, last)
		if !suspect {
			last = name
		}
		if name == "" {
			continue
		}
		switch differs, err := l.auditMember(ctx, name); {
		case err != nil && ctx.Err() == nil:
			l.im.o.Logger.Debug("a member of another process could not be audited", "member", name, "error", err)
		case len(differs) > 0:
			l.im.o.Logger.Warn("what another process has of a member is told again: it differs from what is here", "member", name, "peer", l.peer.ID, "scopes", len(differs))
			l.askAgain(name, differs)
		}
	}
}

// waitForAudit waits, less long if there is a suspect.
func (l *link) waitForAudit(ctx context.Context, wait time.Duration) error {
	const step = time.Second
	for until := time.Now().Add(wait); ; {
		left := time.Until(until)
		l.im.mu.Lock()
		suspects := len(l.suspects)
		l.im.mu.Unlock()
		if left <= 0 || suspects > 0 {
			return sleep.For(ctx, min(max(left, time.Millisecond), step))
		}
		if err := sleep.For(ctx, min(left, step)); err != nil {
			return err
		}
	}
}

// nextAudit returns a suspect, or the member after the last.
func (l *link) nextAudit(names []string, last string) (suspect bool, name string) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	for name := range l.suspects {
		delete(l.suspects, name)
		return true, name
	}
	for _, name := range names {
		if name > last {
			return false, name
		}
	}
	return false, "" // begins again
}

// askAgain has scopes of a member told again.
func (l *link) askAgain(name string, kinds []aggregate.Kind) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	for _, kind := range kinds {
		l.again[ask{name, kind}] = true
	}
	l.recheckLocked()
}

// auditMember returns the scopes of a member that differ for certain.
func (l *link) auditMember(ctx context.Context, name string) (differs []aggregate.Kind, err error) {
	theirs, err := l.digests(ctx, name)
	if err != nil {
		return nil, err
	}
	l.im.mu.Lock()
	m := l.im.members[name]
	same := m != nil && m.source == l.peer.ID && l.epoch == theirs.Epoch && l.has.number == theirs.Interest
	position, number := l.position, l.has.number
	l.im.mu.Unlock()
	if !same {
		return nil, nil
	}
	m.mu.Lock()
	now := l.im.o.Index.Newest()
	ours := make(map[aggregate.Kind]scope, len(m.scopes))
	for kind, s := range m.scopes {
		ours[kind] = scope{told: s.told, info: s.info, changed: s.changed, number: s.number}
	}
	last, asked := m.changed, m.number
	m.mu.Unlock()
	if !l.tells(m) {
		return nil, nil
	}
	for kind, d := range theirs.Scopes {
		s, ok := ours[kind]
		if !ok {
			s.changed, s.number = last, asked // it may have been there
		}
		if position < d.Changed || s.changed > theirs.Sequence || s.number > number {
			continue // one has what the other one does not know yet
		}
		l.metrics.audited.Inc()
		records, total, err := sumOfIndex(now, name, kind)
		if err != nil {
			return nil, err
		}
		if !ok || records != d.Records || wire.Digest(s.info, total) != d.Digest {
			l.metrics.differs.Inc()
			differs = append(differs, kind)
		}
	}
	return differs, nil
}

// tells reports whether the peer tells of a member.
func (l *link) tells(m *member) bool {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	return m.source == l.peer.ID
}

// sumOfIndex is sumOf for what the index has.
func sumOfIndex(now *aggregate.Snapshot, member string, kind aggregate.Kind) (records int, total uint64, err error) {
	var payload, body []byte
	for o := range now.Objects(member, kind) {
		if body, err = o.AppendBody(body[:0]); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", o.Ref(), err)
		}
		payload = wire.AppendRecord(payload[:0], &aggregate.Record{
			Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(),
			Labels: o.Labels(), Owners: o.Owners(), Body: body,
		})
		total += wire.RecordHash(payload)
		records++
	}
	return records, total, nil
}

// digests asks the peer for those of a member.
func (l *link) digests(ctx context.Context, name string) (d digests, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	l.im.mu.Lock()
	query := url.Values{"member": {name}, "stream": {strconv.FormatUint(l.id, 10)}}
	l.im.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.peer.URL+DigestsPath+"?"+query.Encode(), nil)
	if err != nil {
		return d, err
	}
	response, err := l.peer.Client.Do(request)
	if err != nil {
		return d, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return d, fmt.Errorf("it answers %s", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDigests+1))
	if err != nil {
		return d, err
	}
	if len(text) > maxDigests {
		return d, errors.New("it answers too much")
	}
	return d, json.Unmarshal(text, &d)
}
