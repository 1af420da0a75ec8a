package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/shards/internal/coordinator"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// leading is what this process knows while it leads.
type leading struct {
	*coordinator.Leader

	reports reports
	unread  bool // a write has ended with an error: what the hub has is not known
	wrote   time.Time
	urgent  *rate.Limiter
	told    string // the last error that was logged
}

// lead writes the map, while this process leads, until ctx is done.
func (s *Shards) lead(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(s.o.Renew)
	defer tick.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	// Over a while there is one map in the time between two renewals. One that cannot wait may come sooner, of which there are
	// as many as processes that come and go.
	l := &leading{urgent: rate.NewLimiter(rate.Every(s.o.Renew), 3)}
	defer l.reports.asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-again.C:
		case <-s.consider:
		}
		until, err := s.o.Lead()
		if err != nil {
			l.Leader = nil // who leads next goes on with the map that there is
			again.Reset(s.o.Renew / 20)
			continue
		}
		if l.Leader == nil {
			l.Leader = &coordinator.Leader{Replication: s.o.Replication, Count: s.o.Count, Patience: began.Add(s.o.Expire)}
			l.reports.forget()
		}
		s.askAll(ctx, &l.reports)
		deadline, cancel := context.WithDeadline(ctx, until)
		wait, err := s.decide(deadline, l)
		cancel()
		s.note(l, err)
		if next := s.nextEnd(); next > 0 && (wait == 0 || next < wait) {
			wait = next
		}
		if wait > 0 {
			again.Reset(wait)
		}
	}
}

// nextEnd is after which time a process is gone whose Lease is not renewed; 0: none is.
func (s *Shards) nextEnd() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases.Next(time.Now())
}

// note logs an error once.
func (s *Shards) note(l *leading, err error) {
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) && !apierrors.IsConflict(err) {
		text = err.Error()
		s.metrics.failed.WithLabelValues("map").Inc()
	}
	if text != "" && text != l.told {
		s.log.Error("the map of shards could not be written", "error", err)
	}
	l.told = text
	s.metrics.noteWrite(err)
}

// decide takes one step, and writes the map that comes of it. It returns when there is to be another one, where nothing else
// happens before.
func (s *Shards) decide(ctx context.Context, l *leading) (again time.Duration, err error) {
	if l.unread {
		if err := s.readMap(ctx); err != nil {
			return s.o.Renew / 2, err
		}
		l.unread = false
	}
	if err := s.noMap(ctx); err != nil {
		return s.o.Renew / 2, err
	}
	if !l.reports.ended() { // who begins to lead hears what others have, before it decides
		return 0, nil
	}
	known, hub, err := s.known(ctx, l)
	if err != nil || hub.err != nil { // nobody writes over what they do not understand
		return s.o.Renew / 2, err
	}
	if known.Map != nil && hub.version < known.Map.Version { // it was deleted, or put back, unless a watch is late
		if err := s.readMap(ctx); err != nil {
			return s.o.Renew / 2, err
		}
		if known, hub, err = s.known(ctx, l); err != nil || hub.err != nil {
			return s.o.Renew / 2, err
		}
	}
	d := l.Step(known)
	s.metrics.noteLeader(l.Leader)
	if d.Map == nil {
		return 0, nil
	}
	switch waited := time.Since(l.wrote); {
	case waited >= s.o.Renew:
		l.urgent.Allow()
	case !d.Urgent:
		return s.o.Renew - waited, nil
	case !l.urgent.Allow():
		return s.o.Renew / 5, nil
	}
	l.wrote = time.Now()
	if err := s.write(ctx, d.Map, hub.resourceVersion); err != nil {
		l.unread = true
		return s.o.Renew / 2, err
	}
	return 0, nil
}

// known returns what the leader knows now.
func (s *Shards) known(ctx context.Context, l *leading) (coordinator.Known, onHub, error) {
	k := coordinator.Known{Now: time.Now(), Reports: l.reports.latest()}
	s.mu.Lock()
	hub := s.hub
	k.Map, k.Hub, k.Live = s.current, hub.version, s.leases.Live(k.Now)
	s.mu.Unlock()
	s.sources.mu.Lock()
	k.Fleet, k.Complete = s.sources.described, s.sources.complete
	s.sources.mu.Unlock()
	live := map[string]bool{}
	for _, p := range k.Live {
		live[p.ID] = true
	}
	if k.Map == nil {
		return k, hub, nil
	}
	// A watch that is late, or this process, if it has slept, is not the end of others.
	looked := false
	for _, p := range k.Map.Processes {
		if live[p.ID] {
			continue
		}
		looked = true
		lease, err := s.client.CoordinationV1().Leases(s.o.Namespace).Get(ctx, LeasePrefix+p.ID, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return k, hub, fmt.Errorf("whether process %s lives: %w", p.ID, err)
		default:
			s.seeLease(lease)
		}
	}
	if looked {
		s.spare(&k)
	}
	return k, hub, nil
}

// spare sets who lives, after the hub was asked. Where the hub was away from all, nobody could renew anything: as long as this
// process has not been in contact for the life of a Lease, only who has released theirs is gone.
func (s *Shards) spare(k *coordinator.Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.Live = s.leases.Live(k.Now)
	if !s.contact.IsZero() && k.Now.Sub(s.contact) > s.o.Expire+s.o.Renew {
		return
	}
	for _, p := range k.Map.Processes {
		if slices.ContainsFunc(k.Live, func(l Process) bool { return l.ID == p.ID }) {
			continue
		}
		if now, is := s.leases.Process(p.ID); is {
			k.Live = append(k.Live, now)
		}
	}
}

// write writes a map over the one that the leader knew.
func (s *Shards) write(ctx context.Context, m *Map, resourceVersion string) error {
	data, err := m.Encode()
	name := s.o.Namespace + "/" + s.o.ConfigMap
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.hubTimeout())
	defer cancel()
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.o.Namespace, Name: s.o.ConfigMap, ResourceVersion: resourceVersion},
		BinaryData: map[string][]byte{shardmap.Key: data},
	}
	maps := s.client.CoreV1().ConfigMaps(s.o.Namespace)
	if resourceVersion == "" {
		c, err = maps.Create(ctx, c, metav1.CreateOptions{})
	} else {
		c, err = maps.Update(ctx, c, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	s.metrics.writes.Inc()
	s.accept(m, c.ResourceVersion)
	return nil
}
