package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// lookEvery is how soon it is noticed that the machine slept.
	lookEvery = time.Minute
	// minBetween is the shortest time between renewals, whatever certificates say.
	minBetween = time.Second
)

// spread returns how much of a time passes before a certificate is renewed: agents that joined together do not renew together.
func (c *credentials) spread(d time.Duration) time.Duration { return d/2 + rand.N(d/8+1) }

// floor is the time that at least passes between renewals, and the most between those that fail.
func (c *credentials) floor() time.Duration { return max(c.life()/32, minBetween) }

// received notes that the certificate was made just now. How much of its life is over is counted from here: the agent's
// clock may be ahead of federator's by more than that life.
func (c *credentials) received(now time.Time) {
	d := c.life()
	if left := c.certificate.Leaf.NotAfter.Sub(now); left > 0 {
		d = min(d, left) // the CA may be about to expire
	}
	c.renewAt = now.Add(max(c.spread(d), c.floor()))
}

// keepValid renews the certificate while there is plenty of its life left, and keeps what could not be kept before, until
// ctx is done. It returns an error once the agent is to join again: federator refuses the certificate, or a process of it
// does and there is a new token.
func (a *Agent) keepValid(ctx context.Context) error {
	var renewing, saving backoff
	var doubted time.Time // when a refusal of a link was last looked into
	c := a.current.Load()
	renewAt, saveAt := c.renewAt, time.Now().Add(saving.next())
	for {
		from := time.Now()
		wait := min(renewAt.Sub(from), lookEvery)
		if !c.saved {
			wait = min(wait, saveAt.Sub(from))
		}
		doubt, is := a.wait(ctx, wait)
		if !is {
			return nil
		}
		now := time.Now()
		// Timers stand still while the machine sleeps, and certificates expire.
		renewAt = renewAt.Add(-max(now.Round(0).Sub(from.Round(0))-now.Sub(from), 0))
		if !c.saved && !now.Before(saveAt) {
			if err := a.save(ctx, c); err != nil {
				a.o.Logger.Warn("the certificate could not be kept, trying again", "error", err)
				saveAt = now.Add(saving.next())
			} else {
				a.o.Logger.Info("the certificate is kept")
			}
		}
		if doubt && a.hasNewToken(c) {
			return errors.New("there is a new token")
		}
		// What one process refuses the hub decides: renewing asks it. Not again and again, if it is that process alone.
		// The back-off begins again: after a long outage, one answer that is lost would leave the refusal open for all of floor.
		if doubt && (doubted.IsZero() || now.Sub(doubted) >= c.floor()) {
			doubted, renewAt, renewing = now, now, backoff{}
		}
		if now.Before(renewAt) {
			continue
		}
		renewed, err := a.renew(ctx, c)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			c, renewing, saving = renewed, backoff{}, backoff{}
			renewAt, saveAt = c.renewAt, time.Now().Add(saving.next())
			a.current.Store(c)
			for _, l := range a.links {
				l.replace()
			}
		case errors.Is(err, ErrRefused):
			return err
		default:
			a.o.Logger.Warn("renewing the certificate failed, trying again", "expires", c.certificate.Leaf.NotAfter, "error", err)
			renewing.most = c.floor()
			renewAt = now.Add(renewing.next())
		}
	}
}

// wait waits for a time, and no longer than until a link is refused, which it reports. It returns false once ctx is done.
func (a *Agent) wait(ctx context.Context, d time.Duration) (doubt, ok bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a.doubts:
		return true, true
	case <-t.C:
		return false, true
	case <-ctx.Done():
		return false, false
	}
}

// hasNewToken reports whether there is a token by which the agent has not joined, nor tried to.
func (a *Agent) hasNewToken(c *credentials) bool {
	if a.o.ReadToken == nil || a.readToken() != nil || a.token == nil {
		return false
	}
	id := a.token.ID()
	return id != c.kept.Token && id != a.failed
}
