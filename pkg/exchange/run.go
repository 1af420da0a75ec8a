package exchange

import (
	"context"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
)

// Run follows the peers until the context ends.
func (im *Importer) Run(ctx context.Context) error {
	defer im.stopAll()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		im.reconcile(ctx)
		timer.Reset(im.judge(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-im.wake:
		case <-timer.C:
		}
	}
}

// reconcile has one link for each peer. It joins those that end.
func (im *Importer) reconcile(ctx context.Context) {
	im.mu.Lock()
	var ending, starting []*link
	for id, l := range im.links {
		if p, ok := im.wanted[id]; !ok || p != l.peer {
			ending = append(ending, l)
		}
	}
	im.mu.Unlock()
	for _, l := range ending {
		l.stop()
	}
	im.mu.Lock()
	for _, l := range ending {
		p, ok := im.wanted[l.peer.ID]
		if !ok {
			im.removeLocked(l)
			continue
		}
		l.peer = p
		starting = append(starting, l)
	}
	for id, p := range im.wanted {
		if im.links[id] == nil {
			l := &link{im: im, peer: p, announced: map[string]string{}, again: map[ask]bool{}, suspects: map[string]bool{}, ask: trigger.New()}
			l.metrics = im.metrics.of(id)
			im.links[id] = l
			starting = append(starting, l)
		}
	}
	im.mu.Unlock()
	for _, l := range starting {
		l.start(ctx)
	}
}

// removeLocked forgets a peer, whose members are as it has left them.
func (im *Importer) removeLocked(l *link) {
	delete(im.links, l.peer.ID)
	im.metrics.remove(l.peer.ID)
	for _, m := range im.members {
		if m.source == l.peer.ID {
			m.orphan(l, "process "+l.peer.ID+", which judged it, is gone")
		}
	}
}

// orphan says that nobody tells of a member any more, of which a peer did. Importer.mu must be held.
func (m *member) orphan(from *link, why string) {
	m.source, m.since, m.why = "", time.Now(), why
	m.has = from.im.bothLocked(m.has, from.asks.set) // and maybe less than it had
}

func (im *Importer) stopAll() {
	im.mu.Lock()
	var all []*link
	for _, l := range im.links {
		all = append(all, l)
	}
	im.mu.Unlock()
	for _, l := range all {
		l.stop()
	}
}

// judge shows members as Stale whose peer was lost for longer than the grace, and others as they were told. It returns
// when it is to be called again at the latest.
func (im *Importer) judge(now time.Time) time.Duration {
	type verdict struct {
		m     *member
		stale string
		lacks bool // what is asked for
		keep  bool // within the grace: as it is
	}
	next := time.Hour
	im.mu.Lock()
	verdicts := make([]verdict, 0, len(im.members))
	have := im.havesLocked()
	for _, m := range im.members {
		since, why := m.since, m.why
		if m.source != "" {
			since, why = time.Time{}, ""
			if l := im.links[m.source]; l != nil && !l.lost.IsZero() {
				since, why = l.lost, "process "+m.source+": "+l.reason
			}
		}
		if m.source != "" && since.IsZero() && m.away && !have(m).held {
			since, why = time.Unix(0, 0), "process "+m.source+" is being asked for more of it"
		}
		v := verdict{m: m}
		if m.lacks || !since.IsZero() {
			v.lacks = !have(m).asked
		}
		if !since.IsZero() {
			left := since.Add(im.o.Grace).Sub(now)
			if v.keep = left > 0; v.keep {
				next = min(next, left)
			} else {
				v.stale = clip.Line(why, maxReason)
			}
		}
		// From here on it counts, or holds up what is held no longer than until it is shown as one that lacks it.
		m.away, m.lacks = m.away && (v.stale != "" || v.keep), m.lacks && v.lacks
		verdicts = append(verdicts, v)
	}
	im.mu.Unlock()
	stale := 0
	for _, v := range verdicts {
		v.m.mu.Lock()
		if !v.keep && ((v.stale == "") != (v.m.stale == "") || v.stale != "" && v.lacks != v.m.unread) {
			v.m.show(im, v.stale, v.lacks)
		}
		if v.m.stale != "" {
			stale++
			im.mu.Lock()
			v.m.away, v.m.lacks = true, v.m.unread
			im.mu.Unlock()
		}
		v.m.mu.Unlock()
	}
	im.mu.Lock()
	im.growLocked() // who is away is not waited for
	im.mu.Unlock()
	im.metrics.stale.Set(float64(stale))
	return next
}

// show shows a member as Stale, and as Unread where it lacks what is asked for, or as it was told. m.mu must be held.
func (m *member) show(im *Importer, stale string, lacks bool) {
	m.stale, m.unread = stale, lacks
	if m.removed || m.told == nil {
		return
	}
	err := m.put(im.o.Index)
	for _, s := range m.scopes {
		s.writer.SetStatus(m.shown(s.told.Status))
		if _, e := s.writer.Commit(); e != nil {
			err = e
		}
	}
	if err != nil { // no revisions are left: the process ends
		im.o.Logger.Error("a member of another process could not be written", "member", m.name, "error", err)
	}
}
