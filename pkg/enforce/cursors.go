package enforce

import "federator.dev/federator/pkg/aggregate"

// cursors are the loop's positions in both indexes.
type cursors struct {
	own, peers *aggregate.Cursor // peers is nil without peers
	after      snapshots
}

// snapshots are what an evaluation is of.
type snapshots struct{ own, peers *aggregate.Snapshot }

// newest returns the newest snapshots. That of the peers' index is taken first: it lets go of a member once the own one has it, and
// a member that neither had would seem not to be there.
func (l *Loop) newest() (s snapshots) {
	if l.opts.Peers != nil {
		s.peers = l.opts.Peers.Snapshot()
	}
	s.own = l.opts.Index.Snapshot()
	return s
}

func (l *Loop) cursorsAt(s snapshots) *cursors {
	c := &cursors{own: l.opts.Index.Cursor(s.own), after: s}
	if s.peers != nil {
		c.peers = l.opts.Peers.Cursor(s.peers)
	}
	return c
}

// poll returns the next batch of each index, nil where there is none, in the order in which newest takes them.
func (c *cursors) poll() (own, peers *aggregate.Batch) {
	if c.peers != nil {
		if batch, some := c.peers.Poll(); some {
			peers, c.after.peers = batch, batch.After
		}
	}
	if batch, some := c.own.Poll(); some {
		own, c.after.own = batch, batch.After
	}
	return own, peers
}

// newer returns channels that are closed when there is more in an index.
func (l *Loop) newer(s snapshots) (own, peers <-chan struct{}) {
	if s.peers != nil {
		peers = l.opts.Peers.Newer(s.peers)
	}
	return l.opts.Index.Newer(s.own), peers
}
