package faults

import (
	"time"

	"federator.dev/federator/test/kube/tcpproxy"
)

// mode returns what sets the mode of the way to the first member.
func mode(m tcpproxy.Mode) func(*rig) error {
	return func(r *rig) error { return r.members[0].Proxy.Set(m) }
}

// linkFaults befall the way to a member. None of them is a reason to list anything again.
var linkFaults = []fault{
	{
		name: "cut", short: true, hold: 10 * time.Second, brief: time.Second,
		inject: mode(tcpproxy.Mode{State: tcpproxy.Cut}), heal: mode(tcpproxy.Mode{}),
	},
	{
		name: "half-open", hold: 10 * time.Second, brief: time.Second,
		inject: func(r *rig) error {
			r.members[0].Proxy.HalfOpen()
			return nil
		},
	},
	{
		name: "black hole", hold: 10 * time.Second, brief: time.Second,
		inject: mode(tcpproxy.Mode{State: tcpproxy.BlackHole}), heal: mode(tcpproxy.Mode{}),
	},
	{
		name: "reset within a frame", short: true,
		inject: func(r *rig) error {
			for range 5 {
				reset := r.members[0].Proxy.Stats().Accepted
				r.members[0].Proxy.ResetWithin(1 + r.rng.IntN(60))
				if err := r.until("another connection", func() bool { return r.members[0].Proxy.Stats().Accepted > reset }); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "1 byte/s", hold: 20 * time.Second, brief: 2 * time.Second,
		inject: mode(tcpproxy.Mode{BytesPerSecond: 1}), heal: mode(tcpproxy.Mode{}),
	},
}
